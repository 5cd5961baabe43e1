// Package ledger proves from a job's ledger what was trained on. It knows docs/samples.md and
// nothing else: no code is shared with what it checks.
package ledger
