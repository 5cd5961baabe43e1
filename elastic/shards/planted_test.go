package shards

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bugs are changes of the source that the simulation must detect: isPlanted("") is true for the one
// that is tried.
var bugs = []struct {
	name     string
	caughtBy []int // any of these invariants
	changes  []change
}{
	{"forgets the commit before", []int{2}, []change{
		{"save.go", `return o.Compare(s.whole) < 0 })`, `return o.Compare(s.whole) < 0 || isPlanted("") && o != commit })`},
	}},
	{"forgets no commit", []int{5}, []change{
		{"state.go", `if !useless(x.commit) {`, `if isPlanted("") || !useless(x.commit) {`},
	}},
	{"agrees before the copies have arrived", []int{4, 6}, []change{
		{"save.go", "\tk.wait.Wait()\n\ts.copying = nil", "\tif !isPlanted(\"\") {\n\t\tk.wait.Wait()\n\t}\n\ts.copying = nil"},
	}},
	{"keeps copies that have not arrived", []int{1, 2, 4, 7}, []change{
		{"save.go", `x.filled = err == nil`, `x.filled = err == nil || isPlanted("")`},
	}},
	{"commits what is in memory later", []int{1, 7}, []change{
		{"save.go", "\ts.fill(own, overlap && !parting.Planned)\n", "\tif isPlanted(\"\") {\n\t\town.parts = s.parts\n\t} else {\n\t\ts.fill(own, overlap && !parting.Planned)\n\t}\n"},
	}},
	{"copies later what is not live", []int{1, 7}, []change{
		{"overlap.go", `case overlap && p.live:`, `case overlap && (p.live || isPlanted("")):`},
	}},
	{"sends what is not copied yet", []int{7}, []change{
		{"save.go", "if err := own.await(); err != nil {\n\t\t\t\t\t\treturn err\n\t\t\t\t\t}\n\t\t\t\t\treturn sendRange", "if isPlanted(\"\") {\n\t\t\t\t\t} else if err := own.await(); err != nil {\n\t\t\t\t\t\treturn err\n\t\t\t\t\t}\n\t\t\t\t\treturn sendRange"},
	}},
	{"makes parity of what is not copied yet", []int{7}, []change{
		{"parity.go", "if err := ready(); err != nil {", "if isPlanted(\"\") {\n\t\t\t} else if err := ready(); err != nil {"},
	}},
	{"lets live parts change while they are copied", []int{1, 7}, []change{
		{"overlap.go", `own != nil && own.ready != nil {`, `own != nil && own.ready != nil && !isPlanted("") {`},
	}},
	{"copies what was not brought yet", []int{1, 7}, []change{
		{"overlap.go", "\t\t\t\t<-own.brought\n", "\t\t\t\tif !isPlanted(\"\") {\n\t\t\t\t\t<-own.brought\n\t\t\t\t}\n"},
	}},
	{"says that all is copied when it was brought", []int{1, 7}, []change{
		{"overlap.go", "\t\tclose(own.brought)\n\t\t<-own.ready\n", "\t\tclose(own.brought)\n\t\tif !isPlanted(\"\") {\n\t\t\t<-own.ready\n\t\t}\n"},
		{"overlap.go", "\t\t\town.take(parts, away)\n", "\t\t\tif isPlanted(\"\") && s.copies != nil && len(away) > 0 {\n\t\t\t\ts.copies()\n\t\t\t}\n\t\t\town.take(parts, away)\n"},
	}},
	{"returns to a commit that was withdrawn", []int{2}, []change{
		{"choose.go", `x != (Commit{}) && slices.Contains(`, `x != (Commit{}) && !isPlanted("") && slices.Contains(`},
	}},
	{"drops the commit before one that was withdrawn", []int{2}, []change{
		{"save.go", "case s.Withdrawn():\n\t\ts.drop", "case s.Withdrawn() && !isPlanted(\"\"):\n\t\ts.drop"},
	}},
	{"mixes two commits", []int{1, 7}, []change{
		{"sync.go", `if set.commit != chosen {`, `if set.commit != chosen && !isPlanted("") {`},
	}},
	{"goes on although parts are missing", []int{2}, []change{
		{"choose.go", `if len(missing) == 0 {`, `if len(missing) == 0 || isPlanted("") {`},
	}},
	{"takes a commit for an initial state", []int{2, 3}, []change{
		{"choose.go", `return x.Commit == c }) ||`, `return x.Commit == c }) || !isPlanted("") &&`},
	}},
	{"begins anew when nothing is left", []int{2}, []change{
		{"choose.go", `if candidate.Step > 0 &&`, `if candidate.Step > 0 && !isPlanted("") &&`},
	}},
	{"adds parity to what was in the memory", []int{7}, []change{
		{"parity.go", `		clear(p.parity)`, "\t\tif !isPlanted(\"\") {\n\t\t\tclear(p.parity)\n\t\t}"},
	}},
	{"rebuilds from parity that has not arrived", []int{1, 2, 6, 7}, []change{
		{"rebuild.go", `rank, p.Kept, t.translate`, `rank, p.Kept || isPlanted(""), t.translate`},
	}},
	{"makes up for no copies that are lost", []int{6}, []change{
		{"sync.go", `case s.options.Parity == 0:`, `case isPlanted(""):
	case s.options.Parity == 0:`},
	}},
	{"forwards what has not arrived", []int{1}, []change{
		{"transfer.go", `					select {
					case <-s.arrived:`, `					pass := make(chan struct{})
					if isPlanted("") {
						close(pass)
					}
					select {
					case <-pass:
					case <-s.arrived:`},
	}},
	{"believes in memory of another commit", []int{1}, []change{
		{"local.go", `return p.has == x.chosen &&`, `return (p.has == x.chosen || isPlanted("") && p.has != (Commit{})) &&`},
		{"local.go", `!alike(memory, kept)`, `!isPlanted("") && !alike(memory, kept)`},
	}},
	{"believes in memory that was not filled to the end", []int{1}, []change{
		{"sync.go", `s.filled, s.former = Commit{}, nil // what`, `if !isPlanted("") {
		s.filled = Commit{}
	} // what`},
		{"local.go", `!bytes.Equal(`, `!isPlanted("") && !bytes.Equal(`},
	}},
	{"compares no hashes", []int{1, 7}, []change{
		{"transfer.go", `Bytes() != want {`, `Bytes() != want && !isPlanted("") {`},
	}},
	{"sends what is there", []int{0, 4}, []change{
		{"../reshard/plan.go", `lacking[cell].remove(holders[cell])`, `if !isPlanted("") {
			lacking[cell].remove(holders[cell])
		}`},
	}},
	{"copies too little", []int{6}, []change{
		{"../reshard/copies.go", `return holders.count() <= copies })`, `return holders.count() <= copies && !isPlanted("") || holders.count() < copies })`},
	}},
	{"lets replicas leave together", []int{6}, []change{
		{"../reshard/copies.go", `return n-gap+1 <= most`, `return n-gap+1 <= most && !isPlanted("")`},
	}},
	{"hands over what some have", []int{6}, []change{
		{"../reshard/copies.go", `for _, share := range Deal(g.box(cell, 1), have[0], len(has), len(stay)) {`, `for k, share := range Deal(g.box(cell, 1), have[0], len(has), len(stay)) {
				if isPlanted("") && k > 0 {
					continue
				}`},
	}},
	{"claims one loss more", []int{6}, []change{
		{"../reshard/survive.go", `return least - 1`, `if isPlanted("") {
		return least
	}
	return least - 1`},
	}},
}

// change replaces a part of a file.
type change struct{ file, is, becomes string }

// planted is set for a broken build; without it TestPlanted does nothing.
var planted = flag.Bool("planted", false, "run a broken build, until an invariant is violated")

// TestPlanted runs seeds until an invariant is violated.
func TestPlanted(t *testing.T) {
	for s := uint64(0); *planted && s < 500; s++ {
		if h := play(t, s, false); h.broken != nil {
			t.Fatalf("seed %d: %s", s, h.broken)
		}
	}
}

// TestBugsPlantedInTheSourceAreCaught builds this package with all bugs, and runs seeds with each
// in turn until an invariant is violated.
func TestBugsPlantedInTheSourceAreCaught(t *testing.T) {
	binary := buildWithBugs(t)
	found := regexp.MustCompile(`seed \d+: invariant (\d+)[^\n]*`)
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), binary, "-test.run", "^TestPlanted$", "-planted")
			run.Env = append(os.Environ(), "PLANTED="+b.name)
			out, err := run.CombinedOutput()
			line := found.FindStringSubmatch(string(out))
			if err == nil || line == nil {
				t.Fatalf("no invariant was violated: %v\n%.2000s", err, out)
			}
			if n, _ := strconv.Atoi(line[1]); !slices.Contains(b.caughtBy, n) {
				t.Errorf("it was caught by another invariant than %v", b.caughtBy)
			}
			t.Logf("%.300s", line[0])
		})
	}
}

func buildWithBugs(t *testing.T) string {
	dir := t.TempDir()
	texts, overlay := map[string]string{}, map[string]string{}
	for _, b := range bugs {
		for _, c := range b.changes {
			file, err := filepath.Abs(c.file)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := texts[file]; !ok {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				texts[file] = string(text)
			}
			if n := strings.Count(texts[file], c.is); n != 1 {
				t.Fatalf("%s has %q %d times", c.file, c.is, n)
			}
			texts[file] = strings.Replace(texts[file], c.is, strings.ReplaceAll(c.becomes, `isPlanted("")`, "isPlanted("+strconv.Quote(b.name)+")"), 1)
			added := filepath.Join(filepath.Dir(file), "planted.go")
			texts[added] = "package " + filepath.Base(filepath.Dir(file)) + "\n\nimport \"os\"\n\nfunc isPlanted(name string) bool { return os.Getenv(\"PLANTED\") == name }\n"
		}
	}
	for file, text := range texts {
		broken := filepath.Join(dir, strconv.Itoa(len(overlay))+".go")
		if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[file] = broken
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "broken.test")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}
