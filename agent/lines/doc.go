// Package lines keeps the newest lines of a worker's output that cannot be stored.
package lines
