// Package summary is the result of a job as one JSON object with a fixed shape, which run and demo
// print and scripts read. It is derived from the registry's view of the job only.
package summary
