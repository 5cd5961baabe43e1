// Package durable writes small files that are whole at any moment, and still there after a power
// failure.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces the content of a file, which only its owner can read (mode 0600). A reader
// sees either all of it or that of before. After a return without an error it is on the disk.
func WriteFile(path string, data []byte) error {
	return write(path, data, func(*os.File) error { return nil })
}

// WriteFileForFolder is WriteFile for a file that a process of the folder's owner reads: where root
// writes it, it belongs to that user and not to root.
func WriteFileForFolder(path string, data []byte) error {
	return write(path, data, func(f *os.File) error {
		info, err := os.Stat(filepath.Dir(path))
		if err != nil || os.Geteuid() != 0 {
			return err
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		return f.Chown(int(owner.Uid), int(owner.Gid))
	})
}

func write(path string, data []byte, prepare func(*os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	if err = prepare(f); err == nil {
		_, err = f.Write(data)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
