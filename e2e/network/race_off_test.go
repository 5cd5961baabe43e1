//go:build !race

package network

const race = false
