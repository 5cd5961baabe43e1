package contexts

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
)

// Origin says where a setting of a context comes from, with the line of the file; an empty name of
// a context is the selected one. Empty if it is not set.
func (f *File) Origin(getenv func(string) string, name, field string) string {
	if name == "" {
		name = f.InUse()
	}
	has := func(s Settings) bool {
		for _, v := range s.Values() {
			if v.Name == field {
				return *v.Text != ""
			}
		}
		return false
	}
	if foreign, ok := strings.CutPrefix(name, natsPrefix); ok {
		if s, err := natsContext(getenv, foreign); err == nil && has(s) {
			return "context " + name + ", " + inConfig(getenv, "nats", "context", foreign+".json")
		}
	} else if has(f.Contexts[name]) {
		return "context " + name + ", " + f.at("contexts", name, field)
	}
	if f.Settings != nil && has(*f.Settings) {
		return "settings, " + f.at("settings", field)
	}
	if f.machine != nil {
		return f.machine.Origin(getenv, name, field)
	}
	return ""
}

// SelectedAt says where the selected context is named.
func (f *File) SelectedAt() string {
	if f.Selected == "" && f.machine != nil {
		return f.machine.SelectedAt()
	}
	return "selected, " + f.at("selected")
}

// at returns the path of the file and the line of a field.
func (f *File) at(fields ...string) string {
	b := (&yaml.PathBuilder{}).Root()
	for _, name := range fields {
		b = b.Child(name)
	}
	file, err := os.Open(f.path)
	if err != nil {
		return f.path
	}
	defer file.Close()
	node, err := b.Build().ReadNode(file)
	if err != nil || node == nil || node.GetToken() == nil {
		return f.path
	}
	return fmt.Sprintf("%s:%d", f.path, node.GetToken().Position.Line)
}
