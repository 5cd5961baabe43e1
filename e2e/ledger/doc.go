// Package ledger proves from a job's ledger which samples were trained on. It implements
// docs/samples.md independently: it shares no code with what it checks.
package ledger
