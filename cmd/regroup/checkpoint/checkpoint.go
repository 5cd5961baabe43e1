// Package checkpoint implements the commands for the checkpoints of jobs.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/exitcode"
)

// States of a checkpoint in the output.
const (
	unread     = "unread" // its header is intact
	intact     = "intact"
	partly     = "partly here" // what is here is intact
	unfinished = "unfinished"
	damaged    = "damaged"
	untrusted  = "untrusted"
	unreadable = "unreadable"
)

// Command returns regroup checkpoint with its verbs.
func Command(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoint", Aliases: []string{"ckpt", "checkpoints"}, Short: "Look at checkpoints, verify or remove some",
		Long:    "Is about the checkpoints in a folder of this machine: that which a job has in REGROUP_CHECKPOINT_DIR. Where a job is named, it is that job's folder.",
		Example: command.Examples("regroup checkpoint ls /data/checkpoints", "regroup checkpoint verify mnist-7f3a"),
	}
	cmd.AddCommand(list(env), verify(env), prune(env))
	return command.WithUsage(cmd)
}

// entry is a checkpoint in the output.
type entry struct {
	checkpoint.Name

	File    string    `json:"file"`
	Written time.Time `json:"written"`
	Bytes   int64     `json:"bytes"` // on the disk, with its parts
	Tensors int       `json:"tensors"`
	Files   int       `json:"part_files"`
	// Verified: its ranks have found since that none of them had computed wrongly before.
	Verified bool   `json:"verified"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
}

func entryOf(d *checkpoint.Dir, n checkpoint.Name) entry {
	info, err := d.Stat(n)
	e := entry{Name: n, File: d.Path(n), Written: info.Written.UTC(), Bytes: info.Bytes, Tensors: len(info.Tensors) + len(info.Sharded), Files: info.Files, Verified: info.Verified, State: unread}
	if set, sharded := info.Set(); sharded && !d.Finished(set) {
		e.State = unfinished
	}
	if err != nil {
		e.State, e.Reason = refusal(err)
	}
	return e
}

// refusal returns the state of a checkpoint that was refused, and why.
func refusal(err error) (state, reason string) {
	switch {
	case errors.Is(err, checkpoint.ErrElsewhere):
		state = partly
	case errors.Is(err, checkpoint.ErrCorrupt):
		state = damaged
	case errors.Is(err, checkpoint.ErrUntrusted):
		state = untrusted
	default:
		state = unreadable
	}
	return state, err.Error()
}

func list(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls FOLDER|JOB", Aliases: []string{"list"}, Short: "List checkpoints, the newest first", Args: command.Exactly("FOLDER|JOB"),
		Long:    "Lists the checkpoints in a folder, by what their headers say: the data is not read, see verify. Unfinished are those of which a rank has not said that it wrote its parts. Verified are those of which the ranks have found later that none of them had computed wrongly before, where they compare what they compute (GradientAccumulator with witness).",
		Example: command.Examples("regroup checkpoint ls /data/checkpoints", "regroup checkpoint ls mnist-7f3a -o json | jq '.[0].step'"),
	}
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, all, err := folder(env, cmd, args[0], 1)
		if err != nil {
			return err
		}
		return show(env, cmd, form, all)
	}
	return cmd
}

func show(env command.Env, cmd *cobra.Command, form *command.Format, all []entry) error {
	return command.Print(env, cmd, form, all, command.Columns[entry]{
		Name: func(e entry) string { return e.File }, Header: strings.Fields("STEP GENERATION RUN WRITTEN SIZE TENSORS PARTS VERIFIED STATE"),
		Row: func(p screen.Palette, e entry) []string {
			parts := "-"
			if e.Files > 0 {
				parts = english.Plural(e.Files, "file")
			}
			verified := "-"
			if e.Verified {
				verified = "yes"
			}
			r := []string{
				strconv.FormatUint(e.Step, 10), strconv.FormatUint(e.Generation, 10), strconv.FormatUint(e.Run, 10),
				env.Age(e.Written) + " ago", screen.Bytes(e.Bytes), strconv.Itoa(e.Tensors), parts, verified, e.State,
			}
			if e.Reason != "" {
				r = append(r, p.Faint(e.Reason))
			}
			return r
		},
	})
}

func verify(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify FOLDER|JOB", Short: "Read checkpoints and compare them with their hashes", Args: command.Exactly("FOLDER|JOB"),
		Long:    "Reads all of each checkpoint in a folder, or of the newest one of a step, and compares it with the hashes that it has. It exits with 1 if one is damaged. \"" + partly + "\" means that all that is here is intact: other parts are on other nodes, where each node has a folder of its own.",
		Example: command.Examples("regroup checkpoint verify /data/checkpoints", "regroup checkpoint verify mnist-7f3a --step 4612"),
	}
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	step := cmd.Flags().Uint64("step", 0, "only the newest of this step")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, all, err := folder(env, cmd, args[0], 1)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("step") {
			at := slices.IndexFunc(all, func(e entry) bool { return e.Step == *step })
			if at < 0 {
				return errcode.Errorf(errcode.NotFound, "there is no checkpoint of step %d", *step)
			}
			all = all[at : at+1]
		}
		bad := 0
		for i := range all {
			e := &all[i]
			if err := d.Verify(e.Name); err != nil {
				if e.State, e.Reason = refusal(err); e.State != partly {
					bad++
				}
			} else {
				e.State = intact
			}
		}
		if err := show(env, cmd, form, all); err != nil || bad == 0 {
			return err
		}
		return &exitcode.Error{Code: exitcode.Unexpected, Err: fmt.Errorf("%d of %s cannot be used", bad, english.Plural(len(all), "checkpoint"))}
	}
	return cmd
}

func prune(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune FOLDER|JOB", Short: "Remove the checkpoints for which there are enough newer ones", Args: command.Exactly("FOLDER|JOB"),
		Long:    "Verifies the newest checkpoints in a folder until so many are whole and intact, then removes those that are older, with their parts, and prints their files. Besides the newest, it keeps verified ones before newer ones. What is damaged, or has parts that are not in this folder, does not count, and stays if it is newer than those. A job that is running does the same with REGROUP_CHECKPOINT_KEEP.",
		Example: command.Examples("regroup checkpoint prune /data/checkpoints", "regroup checkpoint prune mnist-7f3a --keep 1"),
	}
	keep := cmd.Flags().Int("keep", 3, "how many to keep")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *keep < 1 {
			return errcode.Errorf(errcode.Invalid, "--keep: is %d, must be at least 1: remove the folder to keep none", *keep)
		}
		d, _, err := folder(env, cmd, args[0], *keep)
		if err != nil {
			return err
		}
		removed, err := d.Prune()
		for _, n := range removed {
			fmt.Fprintln(env.Out, d.Path(n))
		}
		fmt.Fprintf(env.Err, "%s removed\n", english.Plural(len(removed), "checkpoint"))
		return err
	}
	return cmd
}

// folder opens the folder that an argument names, and lists it.
func folder(env command.Env, cmd *cobra.Command, arg string, keep int) (*checkpoint.Dir, []entry, error) {
	path := arg
	if info, err := os.Stat(arg); err != nil || !info.IsDir() {
		if path, err = ofJob(env, cmd, arg); err != nil {
			return nil, nil, err
		}
	}
	d, err := checkpoint.Open(path, keep)
	if err != nil {
		return nil, nil, err
	}
	names, err := d.List()
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, errcode.Errorf(errcode.NotFound, "there is no checkpoint in %s", path)
	}
	all := make([]entry, len(names))
	for i, n := range names {
		all[i] = entryOf(d, n)
	}
	return d, all, nil
}

// ofJob returns the folder that a job has named for its checkpoints, which must be on this machine.
func ofJob(env command.Env, cmd *cobra.Command, ref string) (path string, err error) {
	if ident.JobID(ref).Check() != nil {
		return "", errcode.Errorf(errcode.NotFound, "%s is no folder", ref)
	}
	err = env.Connected(func(ctx context.Context, s command.Session) error {
		v, err := s.Job(ctx, ref)
		if err != nil {
			return fmt.Errorf("%s is no folder, and no job: %w", ref, err)
		}
		path = v.Spec.Env["REGROUP_CHECKPOINT_DIR"]
		if path == "" {
			return errcode.Errorf(errcode.NotFound, "%s names no folder for checkpoints: those that it writes are in folders of its nodes' agents, and end with it; run it with --env REGROUP_CHECKPOINT_DIR=FOLDER", v.Job)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(v.Spec.Workdir, path)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return errcode.Errorf(errcode.NotFound, "the checkpoints of %s are in %s, which is not on this machine: run this command on a node of it", v.Job, path)
		}
		return nil
	})(cmd, []string{ref})
	return path, err
}
