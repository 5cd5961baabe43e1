// Package screen formats terminal output: colours, tables, log prefixes, the status line, the
// history of a job in one line per event, the final summary, and the timeline. It is pure: it reads
// no clock and does no I/O but writing its result.
package screen
