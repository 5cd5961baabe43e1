// Package specfile reads a job spec that a person wrote, YAML or JSON, and says everything that is
// wrong with it at once: line, column, the source with a mark, and what was probably meant. What a
// spec may hold is decided by the events package; this one only knows where in the file each field
// stands.
package specfile
