package torchrun

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
)

// Table renders docs/torchrun.md's table of flags.
func Table() string {
	var b strings.Builder
	b.WriteString("| flag | default | here | what it does |\n|---|---|---|---|\n")
	for _, f := range jobflags.TorchrunFlags {
		here := [...]string{"same", "other", "accepted with a note", "refused"}[f.Torchrun.Outcome]
		initial := ""
		if f.Default != "" {
			initial = "`" + f.Default + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Cell(), initial, here, f.Torchrun.Does)
	}
	return b.String()
}
