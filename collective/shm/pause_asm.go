//go:build amd64 || arm64

package shm

// pause tells the processor that this is a spin loop.
func pause()
