package events

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

// TestTheRowOfATypeCostsNothing: every event that is read asks for its row.
func TestTheRowOfATypeCostsNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { EntryOf(WorkerReady{}.Type()) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestCatalogRows(t *testing.T) {
	services := map[string]bool{ServiceAgent: true}
	for _, name := range ServiceNames() {
		services[name] = true
	}
	writers := map[Family]string{}
	seen := map[Type]bool{}
	for _, row := range Catalog() {
		if seen[row.Type] {
			t.Errorf("%s has two rows: two writers", row.Type)
		}
		seen[row.Type] = true
		if row.New().Type() != row.Type || row.What == "" || row.Since == "" {
			t.Errorf("incomplete row %+v", row)
		}
		if !strings.HasPrefix(string(row.Type), typePrefix) || !strings.HasSuffix(string(row.Type), ".v1") || strings.Count(string(row.Type), ".") != 4 {
			t.Errorf("type %s is not dev.regroup.<family>.<kind>.v1", row.Type)
		}
		for _, r := range row.Readers {
			if !services[r] {
				t.Errorf("%s has the unknown reader %q", row.Type, r)
			}
		}
		if row.Class == ClassCommand {
			if row.Writer != "client" || len(row.Readers) != 1 {
				t.Errorf("command %s: writer %q, readers %q; want clients and the one that answers", row.Type, row.Writer, row.Readers)
			}
			continue
		}
		if f := row.Type.Family(); writers[f] == "" {
			writers[f] = row.Writer
		} else if writers[f] != row.Writer {
			t.Errorf("facts of family %s are written by %s and %s", f, writers[f], row.Writer)
		}
		if !services[row.Writer] {
			t.Errorf("%s has the unknown writer %q", row.Type, row.Writer)
		}
	}
}

// TestEveryTypeHasARow reads the source: the body of a fact or a command without a row would never
// decode.
func TestEveryTypeHasARow(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || fn.Name.Name != "Type" {
				return true
			}
			lit, ok := fn.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			typ := Type(strings.Trim(lit.Value, `"`))
			switch typ.Family() {
			case "req", "sig", "launch", "loop": // not CloudEvents
				return true
			}
			found++
			if _, ok := EntryOf(typ); !ok {
				t.Errorf("%s has no row in the catalogue", typ)
			}
			return true
		})
	}
	if found != len(Catalog()) {
		t.Errorf("found %d types of facts and commands in the source, the catalogue has %d rows", found, len(Catalog()))
	}
}

func TestCatalogMarkdown(t *testing.T) {
	doc := CatalogMarkdown()
	for _, row := range Catalog() {
		if strings.Count(doc, "`"+string(row.Type)+"`") != 1 {
			t.Errorf("%s is not listed once", row.Type)
		}
	}
	for _, want := range []string{"### job", "`regroup.cmd.job.submit`", "`regroup.evt.node.<node>.lost`", "`regroup.evt.round.<job>.sealed`"} {
		if !strings.Contains(doc, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	golden.Compare(t, "../docs/events.md", CatalogMarkdown())
}
