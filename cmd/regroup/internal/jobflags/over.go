package jobflags

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// Over returns the job of a file with what the given flags say in the place of its fields.
// Variables and secrets are added to those of the file. Flags of other launchers, of which several
// make one field, are refused.
//
// For example --env LR=0.1 --name lr-1 over a file with env: {LR: "1", SEED: "2"} gives lr-1 with
// LR 0.1 and SEED 2.
func (f *Flags) Over(file spec.Job) (spec.Job, error) {
	given, bad := f.fill(nil)
	var job spec.Job
	into, err := fields(file)
	if err != nil {
		return job, err
	}
	from, err := fields(given)
	if err != nil {
		return job, err
	}
	f.fs.Visit(func(x *pflag.Flag) {
		_, launcher := f.launchers[x.Name]
		path := f.paths[x.Name]
		switch {
		case sizePaths[x.Name] != "":
			path = "workers"
		case path == "gpu":
			path = "gpu.model"
		case path == "" && launcher && x.Name != "standalone":
			bad = append(bad, spec.FieldError{Path: "--" + x.Name, Message: "cannot be combined with -f: write what it means into the file"})
		}
		if path != "" {
			overlay(into, from, strings.Split(path, "."))
		}
	})
	text, err := json.Marshal(into)
	if err == nil {
		err = json.Unmarshal(text, &job)
	}
	if err != nil {
		return job, errcode.Errorf(errcode.Internal, "flags over a file: %w", err)
	}
	for _, x := range job.WithDefaults().Check() {
		if flag, ok := strings.CutPrefix(f.flagOf(x.Path), "--"); ok && f.fs.Changed(strings.Fields(flag)[0]) {
			x.Path = "--" + flag
		} // else a field of the file that does not go with a flag
		if !slices.Contains(bad, x) { // --workers N is two fields
			bad = append(bad, x)
		}
	}
	return job, errcode.Refuse(bad)
}

// fields returns the fields of a job by their names in a file.
func fields(job spec.Job) (all map[string]any, err error) {
	text, err := json.Marshal(job)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		err = errcode.Errorf(errcode.Internal, "fields of a job: %w", err)
	}
	return all, err
}

// overlay puts the field at a path into another job. Of env and secrets those of both are kept.
func overlay(into, from map[string]any, path []string) {
	name := path[0]
	value, set := from[name]
	below, _ := value.(map[string]any)
	old, _ := into[name].(map[string]any)
	switch {
	case len(path) > 1:
		if old == nil {
			old = map[string]any{}
			into[name] = old
		}
		overlay(old, below, path[1:])
	case !set:
		delete(into, name)
	case (name == "env" || name == "secrets") && old != nil:
		maps.Copy(old, below)
	default:
		into[name] = value
	}
}
