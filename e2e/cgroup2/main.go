// Command cgroup2 runs the tests of package proc on a kernel that has control groups of version 2.
//
//	make e2e SUITE=cgroup2
//
// A machine has the version that its system has mounted, often 1. So this boots a kernel of its own
// in an emulator, with a file system in memory that holds the tests and what they start. They run
// at the top of the hierarchy, and in a group that is delegated to them. Each must pass there: none
// may be skipped, or say that something is not proved.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

//go:embed init.sh
var script []byte

// programs are those of this machine that the script and the tests start.
var programs = []string{
	"sh", "mount", "uname", "stat", "mkdir", "cat", "sleep", "setsid", "prlimit", "env", "tail", "head", "wc", "kill", "seq", "cut", "tr", "yes",
	"grep", "sort", "id", "pwd", "true", "chmod", "mkfifo", "readlink", "rm", "ln",
}

// python is what the tests that are left out need.
const python = "TestASpare|TestSpares"

func main() {
	kernel := flag.String("kernel", ".tools/linux/vmlinuz", "the kernel")
	limit := flag.Duration("limit", 8*time.Minute, "the machine is ended after this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the machine has not ended within %s", *limit))
	defer cancel()
	if err := run(ctx, *kernel); err != nil {
		fmt.Fprintln(os.Stderr, "cgroup2:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kernel string) error {
	dir, err := os.MkdirTemp("", "regroup-cgroup2-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tests := filepath.Join(dir, "proc.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", tests, "./agent/proc")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the tests: %w", err)
	}
	files := filepath.Join(dir, "files")
	if err := pack(files, tests); err != nil {
		return err
	}
	names, err := listed(ctx, tests)
	if err != nil {
		return err
	}
	c := newCheck(names)
	begins := regexp.MustCompile(`^=== (RUN|PAUSE|CONT) `)
	if err := boot(ctx, kernel, files, func(line string) {
		c.read(line)
		if !begins.MatchString(line) {
			fmt.Println(line)
		}
	}); err != nil {
		return err
	}
	if err := c.verdict(); err != nil {
		return err
	}
	fmt.Printf("cgroup2: %d tests have passed at the top, and in a delegated group\n", len(names))
	return nil
}
