// Package durable writes small files that are whole at any moment, and still there after a power
// failure.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces the content of a file, which only its owner can read (mode 0600). A reader
// sees either all of it or that of before. After a return without an error it is on the disk.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
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
