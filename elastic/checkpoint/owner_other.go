//go:build !unix

package checkpoint

import "os"

// trusted cannot see who may write a file on this system.
func trusted(os.FileInfo) error { return nil }
