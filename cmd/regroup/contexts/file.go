package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/durable"
)

// File is the settings file.
type File struct {
	path string

	Selected string              `yaml:"selected,omitempty"` // the context in use if none is named
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

// LoadFile reads and validates a settings file; a missing file is empty.
func LoadFile(path string) (*File, error) {
	f := &File{path: path}
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
		return f, errcode.Errorf(errcode.Invalid, "%s: %s", path, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	return f, f.check()
}

func (f *File) check() error {
	if f.Settings != nil {
		if err := f.Settings.Check(); err != nil {
			return in(f.path, "settings", err)
		}
	}
	for _, name := range f.Names() {
		if err := checkName(name); err != nil {
			return in(f.path, "contexts", err)
		}
		if err := f.Contexts[name].Check(); err != nil {
			return in(f.path, "contexts."+name, err)
		}
	}
	if _, ok := f.Contexts[f.Selected]; !ok && f.Selected != "" && !strings.HasPrefix(f.Selected, natsPrefix) {
		return in(f.path, "", errcode.Errorf(errcode.Invalid, "selected: %w", f.unknown(f.Selected)))
	}
	return nil
}

// Dir is the folder of the settings file, to which paths in it are relative.
func (f *File) Dir() string { return filepath.Dir(f.path) }

// Folder is where the files of a context are, for those that have some of their own.
func (f *File) Folder(context string) string { return filepath.Join(f.Dir(), "joined", context) }

// Names lists the contexts.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

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
	if !ok {
		return s, f.unknown(name)
	}
	return s.below(f.Dir(), getenv("HOME")), nil
}

// Resolve returns the effective settings of a context; empty = the selected one, if any.
func (f *File) Resolve(getenv func(string) string, name string) (Settings, error) {
	var s Settings
	if name == "" {
		name = f.Selected
	}
	if name != "" {
		var err error
		if s, err = f.Context(getenv, name); err != nil {
			return s, err
		}
	}
	if f.Settings != nil {
		below := f.Settings.below(f.Dir(), getenv("HOME"))
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
