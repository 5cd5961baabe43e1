//go:build race

package race

// Enabled reports whether the race detector is in the binary.
const Enabled = true
