// Package screen is how Regroup looks in a terminal: colours, tables, log prefixes, the line that
// stays at the bottom, the story of a job in one line per event, the final summary, and the
// timeline. It reads no clock and talks to nobody; the same input gives the same text.
package screen
