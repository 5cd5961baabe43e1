// Package summary answers one question: what became of a job? The answer is one JSON object with a
// fixed shape, that run and demo print and that scripts read. It is made from the registry's view
// of the job alone.
package summary
