package cluster

import (
	"fmt"
	"net"
	"os"
	"os/exec"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
