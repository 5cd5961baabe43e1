//go:build race

package local

const raceFlag = "-race"
