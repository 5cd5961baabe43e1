package cluster

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/regroup-io/regroup/internal/freeport"
)

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
