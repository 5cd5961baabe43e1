// Package systemd has the units of this folder, for those who have the program without its sources.
package systemd

import "embed"

// Files are the units, and the file of variables that they read, by their names.
//
//go:embed *.service regroup.env
var Files embed.FS
