// Package lines turns the output of a worker into lines, as a terminal would show them, and keeps
// the newest of those that cannot be stored.
package lines
