//go:build race

package collective

// raced: the race detector makes everything several times as slow.
const raced = true
