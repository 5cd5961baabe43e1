// Package local tests the system with real processes on this machine: built binaries, a real
// broker, kill -9.
package local
