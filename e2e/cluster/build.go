package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/regroup-io/regroup/internal/freeport"
)

// Output runs a command and returns what it prints; an error has what it says on standard error.
func Output(cmd *exec.Cmd) (string, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Build builds commands of this module into dir; with the race detector if asked.
func Build(dir string, race bool, packages ...string) error {
	args := []string{"build", "-o", dir + "/"}
	if race {
		args = append(args, "-race")
	}
	for _, p := range packages {
		args = append(args, "github.com/regroup-io/regroup/"+p)
	}
	build := exec.Command("go", args...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// FreeAddress returns a loopback address with a port that was free a moment ago.
func FreeAddress() (string, error) {
	all, err := freeport.Addresses(1)
	if err != nil {
		return "", err
	}
	return all[0], nil
}
