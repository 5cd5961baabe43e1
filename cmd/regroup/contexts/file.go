package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/durable"
)

// File is the settings file.
type File struct {
	path    string
	machine *File // what holds for all users here; nil = nothing

	Selected string              `yaml:"selected,omitempty"` // the context in use if none is named
	Previous string              `yaml:"previous,omitempty"` // the one that was selected before
	Settings *Settings           `yaml:"settings,omitempty"` // defaults of all contexts
	Contexts map[string]Settings `yaml:"contexts,omitempty"`
}

// Path is where the settings file is: config.yaml in $XDG_CONFIG_HOME/regroup or ~/.config/regroup;
// empty without a home.
func Path(getenv func(string) string) string { return inConfig(getenv, "regroup", "config.yaml") }

func inConfig(getenv func(string) string, parts ...string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

// machineFile has the settings and contexts of all users of a machine, below those of the user.
var machineFile = "/etc/regroup/config.yaml"

// Load reads and validates the settings file of the user and that of the machine; a missing file is
// empty.
func Load(getenv func(string) string) (*File, error) {
	machine, err := load(machineFile, nil)
	if err != nil {
		return nil, err
	}
	return load(Path(getenv), machine)
}

func load(path string, machine *File) (*File, error) {
	f := &File{path: path, machine: machine}
	if path == "" {
		return f, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, errcode.Errorf(errcode.Invalid, "settings: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(b, f, yaml.Strict()); err != nil {
		return f, errcode.Errorf(errcode.Invalid, "%s: %s%s", path, strings.TrimSpace(yaml.FormatError(err, false, false)), hint(err))
	}
	return f, f.check()
}

// hint says which key was meant, or where it belongs, after an error about one that is not known.
func hint(err error) string {
	unknown, is := errors.AsType[*yaml.UnknownFieldError](err)
	if !is || unknown.Token == nil {
		return ""
	}
	key, top, settings := unknown.Token.Value, keys(File{}), keys(Settings{})
	switch {
	case slices.Contains(settings, key):
		return fmt.Sprintf("; it belongs below settings, or below a context: settings: {%s: ...}", key)
	case slices.Contains(top, key):
		return "; it belongs at the beginning of a line, and neither below settings nor below a context"
	}
	if meant := spec.DidYouMean(key, append(settings, top...)); meant != "" {
		return "; " + meant
	}
	return "; known are " + strings.Join(settings, ", ") + ", and around them " + strings.Join(top, ", ")
}

// keys lists the keys of a part of the file.
func keys(part any) (all []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(part)) {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			all = append(all, name)
		}
	}
	return all
}

func (f *File) check() error {
	if f.Settings != nil {
		if err := f.Settings.Check(); err != nil {
			return in(f.path, "settings", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
		if err := checkName(name); err != nil {
			return in(f.path, "contexts", err)
		}
		if err := f.Contexts[name].Check(); err != nil {
			return in(f.path, "contexts."+name, err)
		}
	}
	if !slices.Contains(f.Names(), f.Selected) && f.Selected != "" && !strings.HasPrefix(f.Selected, natsPrefix) {
		return in(f.path, "", errcode.Errorf(errcode.Invalid, "selected: %w", f.unknown(f.Selected)))
	}
	return nil
}

// Select selects a context, empty = none; "-" is the one that was selected before.
func (f *File) Select(getenv func(string) string, name string) error {
	if name == "-" {
		if name = f.Previous; name == "" {
			return errcode.Errorf(errcode.NotFound, "no context was selected before this one: name it (regroup context ls)")
		}
	}
	if name != "" {
		if _, err := f.Context(getenv, name); err != nil {
			return err
		}
	}
	if name != f.Selected {
		f.Previous, f.Selected = f.Selected, name
	}
	return nil
}

// Dir is the folder of the settings file, to which paths in it are relative.
func (f *File) Dir() string { return filepath.Dir(f.path) }

// Folder is where the files of a context are, for those that have some of their own.
func (f *File) Folder(context string) string { return filepath.Join(f.Dir(), "joined", context) }

// Names lists the contexts, those of the machine too.
func (f *File) Names() []string {
	all := slices.Collect(maps.Keys(f.Contexts))
	if f.machine != nil {
		all = append(all, f.machine.Names()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// InUse is the context in use if none is named; empty = none.
func (f *File) InUse() string {
	if f.Selected == "" && f.machine != nil {
		return f.machine.Selected
	}
	return f.Selected
}

// Put adds or replaces a context.
func (f *File) Put(name string, s Settings) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return err
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Settings{}
	}
	f.Contexts[name] = s
	return nil
}

func (f *File) unknown(name string) error {
	hint := spec.DidYouMean(name, f.Names())
	if hint == "" {
		hint = "see regroup context ls"
	}
	return errcode.Errorf(errcode.NotFound, "there is no context %q: %s", name, hint)
}

// Context returns the settings of a context; nats:NAME is one of the NATS command line. Relative
// paths are those below the folder of the settings file. NotFound if there is none.
func (f *File) Context(getenv func(string) string, name string) (Settings, error) {
	if foreign, ok := strings.CutPrefix(name, natsPrefix); ok {
		return natsContext(getenv, foreign)
	}
	s, ok := f.Contexts[name]
	if !ok && f.machine != nil && slices.Contains(f.machine.Names(), name) {
		return f.machine.Context(getenv, name)
	}
	if !ok {
		return s, f.unknown(name)
	}
	return s.below(f.Dir(), getenv("HOME")), nil
}

// Resolve returns the effective settings of a context; empty = the selected one, if any.
func (f *File) Resolve(getenv func(string) string, name string) (Settings, error) {
	var s Settings
	if name == "" {
		name = f.InUse()
	}
	if name != "" {
		var err error
		if s, err = f.Context(getenv, name); err != nil {
			return s, err
		}
	}
	for of := f; of != nil; of = of.machine {
		if of.Settings == nil {
			continue
		}
		below := of.Settings.below(of.Dir(), getenv("HOME"))
		if s.Server != "" { // the other connection settings belong to another server
			below = Settings{Timeout: below.Timeout, Output: below.Output, Color: below.Color}
		}
		s = s.Over(below)
	}
	return s, nil
}

// Save writes the file atomically, readable by its user only.
func (f *File) Save() error {
	if f.path == "" {
		return errcode.Errorf(errcode.Invalid, "settings: there is neither XDG_CONFIG_HOME nor HOME: nowhere to write them")
	}
	b, err := yaml.Marshal(f)
	if err != nil {
		return errcode.Errorf(errcode.Internal, "settings: %w", err)
	}
	if err := os.MkdirAll(f.Dir(), 0o700); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if err := durable.WriteFile(f.path, b); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}
