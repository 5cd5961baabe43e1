//go:build !race

// Package race tells whether the race detector is in the binary, as Go's own internal/race does:
// tests build other programs with it too, and repeat less, because it makes them slow.
package race

// Enabled reports whether the race detector is in the binary.
const Enabled = false
