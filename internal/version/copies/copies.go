// Package copies lists the files that repeat the version, and changes them together.
package copies

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// A Copy is a file that has the version.
type Copy struct {
	File    string // from the top of the tree
	Pattern string // one group: the version
}

// number is a version as in Semantic Versioning, without a label: PEP 440 spells labels otherwise.
const number = `([0-9]+\.[0-9]+\.[0-9]+)`

// All are all copies; the first is version.Number itself.
var All = []Copy{
	{"internal/version/version.go", `(?m)^const Number = "` + number + `"$`},
	{"python/regroup/__init__.py", `(?m)^__version__ = "` + number + `"$`},
	{"deploy/helm/regroup/Chart.yaml", `(?m)^version: ` + number + `$`},
	{"deploy/helm/regroup/Chart.yaml", `(?m)^appVersion: "` + number + `"$`},
}

// Read returns the version that a copy in the tree at root has.
func (c Copy) Read(root string) (string, error) {
	text, at, err := c.find(root)
	if err != nil {
		return "", err
	}
	return string(text[at[0]:at[1]]), nil
}

// Write puts a version into a copy.
func (c Copy) Write(root, version string) error {
	if !regexp.MustCompile(`^` + number + `$`).MatchString(version) {
		return fmt.Errorf("version %q: want three numbers, as in 0.2.0", version)
	}
	text, at, err := c.find(root)
	if err != nil {
		return err
	}
	changed := append(append(append([]byte{}, text[:at[0]]...), version...), text[at[1]:]...)
	return os.WriteFile(filepath.Join(root, c.File), changed, 0o644)
}

// find returns the text of the file, and where in it the version begins and ends.
func (c Copy) find(root string) (text []byte, at []int, err error) {
	text, err = os.ReadFile(filepath.Join(root, c.File))
	if err != nil {
		return nil, nil, err
	}
	found := regexp.MustCompile(c.Pattern).FindAllSubmatchIndex(text, -1)
	if len(found) != 1 {
		return nil, nil, fmt.Errorf("%s: %s occurs %s, want one line", c.File, c.Pattern, cmp.Or(map[int]string{0: "nowhere"}[len(found)], "several times"))
	}
	return text, found[0][2:4], nil
}
