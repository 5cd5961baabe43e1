//go:build race

package shm

// raced: the race detector makes everything several times as slow.
const raced = true
