package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// image is an archive of the files that a kernel begins with: cpio, in the format newc.
type image struct {
	bytes.Buffer
	have []string
}

// add adds a file or, without content, a directory, and the directories that it is in.
func (m *image) add(name string, mode fs.FileMode, content []byte) {
	name = strings.TrimPrefix(name, "/")
	if slices.Contains(m.have, name) {
		return
	}
	if dir := filepath.Dir(name); dir != "." {
		m.add(dir, fs.ModeDir|0o755, nil)
	}
	m.have = append(m.have, name)
	bits := uint32(mode.Perm()) | 0o100000
	if mode.IsDir() {
		bits = uint32(mode.Perm()) | 0o040000
	}
	m.entry(name, bits, content)
}

func (m *image) entry(name string, mode uint32, content []byte) {
	fields := []int{len(m.have), int(mode), 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0}
	m.WriteString("070701")
	for _, n := range fields {
		fmt.Fprintf(m, "%08x", n)
	}
	m.WriteString(name + "\x00")
	m.align()
	m.Write(content)
	m.align()
}

func (m *image) align() {
	for m.Len()%4 != 0 {
		m.WriteByte(0)
	}
}

// end returns the whole archive.
func (m *image) end() []byte {
	m.entry("TRAILER!!!", 0, nil)
	return m.Bytes()
}

// copy adds a file of this machine.
func (m *image) copy(from, to string) error {
	b, err := os.ReadFile(from)
	if err == nil {
		m.add(to, 0o755, b)
	}
	return err
}

// program adds a program of this machine to /bin, and the libraries that it wants.
func (m *image) program(name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	if err := m.copy(path, "bin/"+name); err != nil {
		return err
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) == 0 {
		return err
	}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", path, err)
	}
	for _, word := range strings.Fields(string(out)) {
		if !strings.HasPrefix(word, "/") {
			continue
		}
		if err := m.copy(word, word); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
