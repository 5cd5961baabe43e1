package regroup_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// counted are numbers before a plural in a text for people.
var counted = regexp.MustCompile(`%d (?:more |other |older )?(?:workers|nodes|members|slots|places|failures|generations|jobs|processes|streams|facts|launches|answers|arguments|times|attempts|findings|lines|copies|records|hosts|agents|replicas)\b`)

// countedAnyway are texts in which the number is a limit, and never 1, or that only programmers
// see.
var countedAnyway = []string{
	"there are %d webhooks", "%s has %d streams open, which is the share", "%d streams are open, which is the limit", "is %d, with %d workers on each that is more than %d",
	"%d processes of this machine are nodes already", "%d processes of this agent's earlier incarnation", "has %d lines, keys and items", "it fails as it begins, %d times in a row",
	"… [%d lines left out]", "has %d places or more", "topology: %d replicas",
}

// TestCounts: a text with a number of things is right for one of them too. english.Plural and
// english.Between format numbers.
func TestCounts(t *testing.T) {
	for _, root := range []string{"agent", "client", "cmd", "events", "jetstream", "services"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/") {
				return err
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				text, ok := n.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING || !counted.MatchString(text.Value) {
					return true
				}
				for _, known := range countedAnyway {
					if strings.Contains(text.Value, known) {
						return true
					}
				}
				t.Errorf("%s: %s is wrong for one: use english.Plural", fset.Position(text.Pos()), text.Value)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
