//go:build !amd64 || race

package kernel

// variants lists what this machine can run, the best last.
func variants() []*variant { return []*variant{{name: "generic"}} }
