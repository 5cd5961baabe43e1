package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/internal/spawn"
	"github.com/regroup-io/regroup/internal/version"
	"github.com/regroup-io/regroup/internal/version/copies"
)

// A commit is what a release is made of.
type commit struct {
	Hash string    // in full
	Time time.Time // when it was committed; every file of a release has this time
}

// check returns the commit of the tree at root. Its error says why no release can be made of it.
func check(ctx context.Context, root string) (commit, error) {
	changed, err := output(ctx, root, "git", "status", "--porcelain")
	if err != nil {
		return commit{}, err
	}
	if changed != "" {
		return commit{}, fmt.Errorf("the tree differs from its commit: commit or remove\n%s", changed)
	}
	for _, c := range copies.All {
		if got, err := c.Read(root); err != nil {
			return commit{}, err
		} else if got != version.Number {
			return commit{}, fmt.Errorf("%s says %s, internal/version says %s: make version VERSION=%s", c.File, got, version.Number, version.Number)
		}
	}
	tags, err := output(ctx, root, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return commit{}, err
	}
	switch want := "v" + version.Number; {
	case tags == "":
		return commit{}, fmt.Errorf("this commit has no tag: git tag -s %s", want)
	case !slices.Contains(strings.Fields(tags), want):
		return commit{}, fmt.Errorf("the tag of this commit is %s, and the version in the tree is %s: make version VERSION=%s, commit, and tag that commit",
			strings.Join(strings.Fields(tags), ", "), version.Number, strings.TrimPrefix(strings.Fields(tags)[0], "v"))
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return commit{}, err
	}
	if _, err := notes(string(text), version.Number); err != nil {
		return commit{}, err
	}
	said, err := output(ctx, root, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return commit{}, err
	}
	hash, seconds, _ := strings.Cut(said, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return commit{}, fmt.Errorf("git log says %q: %w", said, err)
	}
	return commit{hash, time.Unix(unix, 0).UTC()}, nil
}

// setVersion puts a number into every copy, and a section into CHANGELOG.md.
func setVersion(root, number, date string) error {
	if date != "" {
		if _, err := time.Parse(time.DateOnly, date); err != nil {
			return fmt.Errorf("-date %q: want a day as in 2026-12-31", date)
		}
	}
	for _, c := range copies.All {
		if err := c.Write(root, number); err != nil {
			return err
		}
	}
	file := filepath.Join(root, "CHANGELOG.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := dated(string(text), number, date)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

// output runs a program in dir and returns what it prints, without the space around it.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	err := spawn.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
