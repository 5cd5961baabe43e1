// Package specfile reads a job specification from a YAML or JSON file and reports all errors at
// once: line, column, the source with a marker, and a suggestion. The events/spec package decides
// what is valid; this package locates each field in the file.
package specfile
