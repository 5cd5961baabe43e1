//go:build !race

package shm

const raced = false
