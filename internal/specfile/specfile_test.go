package specfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/golden"
)

// TestRefusals compares the output for each invalid file in testdata.
func TestRefusals(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range files {
		if ext := filepath.Ext(file); ext != ".yaml" && ext != ".json" {
			continue
		}
		tried++
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Read(file, nil)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if errcode.Of(err) != errcode.Invalid {
				t.Errorf("code %s, want invalid", errcode.Of(err))
			}
			if n := len(errcode.FieldErrorsOf(err)); n != len(e.Findings) {
				t.Errorf("%d errors for others, %d of our own", n, len(e.Findings))
			}
			var out bytes.Buffer
			e.Print(&out)
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(e.Findings); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, file+".golden", out.String())
		})
	}
	if tried < 6 {
		t.Fatalf("only %d bad files found", tried)
	}
}

func TestGoodFiles(t *testing.T) {
	want := spec.Job{
		Name: "cifar", Command: []string{"python", "train.py", "--epochs", "10"}, Workers: spec.Workers{Min: 2, Max: 8},
		Env:    map[string]string{"A": "1", "B": "x\ny\n"},
		Labels: map[string]string{"team": "vision", "tier": "2"},
		Stop:   spec.Stop{Grace: spec.Duration(time.Minute)},
		Data:   spec.Data{Samples: 60000},
	}
	for name, text := range map[string]string{
		"yaml": "name: cifar\ncommand: [python, train.py, --epochs, \"10\"]\nworkers: { min: 2, max: 8 }\nenv:\n  A: \"1\"\n  B: |\n    x\n    y\n" +
			"labels: {team: vision, tier: \"2\"}\nstop: {grace: 1m}\ndata: {samples: 60000}\n",
		"anchors": "name: cifar\ncommand:\n- python\n- train.py\n- --epochs\n- !!str 10\nworkers: { min: &n 2, max: 8 }\nenv: {A: '1', B: \"x\\ny\\n\"}\n" +
			"labels: {team: &t vision, tier: \"2\"}\nstop:\n  grace: 1m\ndata: {samples: 60000}\n",
		"json": `{"name":"cifar","command":["python","train.py","--epochs","10"],"workers":{"min":2,"max":8},` +
			`"env":{"A":"1","B":"x\ny\n"},"labels":{"team":"vision","tier":"2"},"stop":{"grace":"1m"},"data":{"samples":60000}}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read("-", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestExamples validates the job files in examples/ and in the documents, also against
// docs/job.schema.json.
func TestExamples(t *testing.T) {
	root := filepath.Join("..", "..")
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(root, "docs", "job.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	try := func(name, text string) {
		tried++
		if _, err := Parse(name, []byte(text)); err != nil {
			t.Error(err)
		}
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(instance); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	block := regexp.MustCompile("(?s)```yaml\n(# yaml-language-server.*?)```")
	for _, pattern := range []string{"examples/*/*.yaml", "*.md", "docs/*.md", "docs/adr/*.md", "python/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(file) == ".yaml" {
				try(file, string(text))
				continue
			}
			for _, found := range block.FindAllStringSubmatch(string(text), -1) {
				try(file, found[1])
			}
		}
	}
	if tried < 2 {
		t.Errorf("only %d job files found", tried)
	}
}

func TestMergeKeys(t *testing.T) {
	got, err := Parse("job.yaml", []byte("name: a\ncommand: [x]\nworkers: {min: 1, max: 1}\nenv: &e {A: one, B: two}\nlabels:\n  <<: *e\n  B: own\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"A": "one", "B": "own"}; !reflect.DeepEqual(got.Labels, want) {
		t.Errorf("labels %v, want %v", got.Labels, want)
	}
}

func TestAbsentFile(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "job.yaml"), nil)
	if errcode.Of(err) != errcode.Invalid || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want Invalid because the file does not exist", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: a\ncommand: [x]\n")
	f.Add("a: &a [*a]\n<<: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse("job.yaml", []byte(text))
		var e *Error
		if errors.As(err, &e) {
			e.Print(&bytes.Buffer{})
		}
	})
}

// TestADeepFileIsRefusedAtOnce parses half a million open brackets, which would take the YAML
// parser minutes.
func TestADeepFileIsRefusedAtOnce(t *testing.T) {
	for name, text := range map[string]string{
		"brackets": "name: " + strings.Repeat("[", 500_000),
		"objects":  "name: " + strings.Repeat("{a: ", 200_000),
		"dashes":   strings.Repeat("- ", 500_000) + "x",
		"closed":   "name: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
	} {
		_, err := Parse("job.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "inside each other") {
			t.Errorf("%s: %.100v", name, err)
		}
	}
	if _, err := Parse("job.yaml", []byte("name: x\ncommand: [sh, -c, \"[ -f x ] && echo [[\"]\nworkers: {min: 1, max: 1}\n")); err != nil {
		t.Errorf("brackets in a text: %v", err)
	}
}
