package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// markOf returns the mark of a process (see spawn), or 0 if it cannot be read.
func (d *Driver) markOf(pid int) uint64 {
	b, err := os.ReadFile(filepath.Join(d.opt.Proc, strconv.Itoa(pid), "limits"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max msgqueue size")); ok {
			fields := strings.Fields(string(rest))
			if len(fields) == 0 {
				return 0
			}
			m, err := strconv.ParseUint(fields[0], 10, 64)
			if err != nil {
				return 0 // unlimited
			}
			return m
		}
	}
	return 0
}
