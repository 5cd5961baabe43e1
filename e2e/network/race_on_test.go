//go:build race

package network

const race = true
