package jobflags

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events/ident"
)

// maxName leaves room for the suffix of an id.
const maxName = 40

// NameOf derives a job's name from its command, for example:
//
//	train    python -u -W ignore train.py, python -m lab.train, torchrun --nnodes 2 train.py
//	python   python -c PROGRAM
//	mnist    env OMP_NUM_THREADS=1 ./mnist
func NameOf(args []string) string {
	if len(args) == 0 {
		return "job"
	}
	id := string(ident.NodeIDFrom(programOf(args))) // the same letters are allowed
	return strings.Trim(id[:min(len(id), maxName)], "-")
}

// pythons are the names of Python's interpreters.
var pythons = regexp.MustCompile(`^(python|pypy)[0-9.]*t?$`)

// shells are the names of shells.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh"}

// launchers are programs that run another one, after options of their own.
var launchers = []string{
	"torchrun", "horovodrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "uv", "poetry", "pdm", "pipenv", "hatch", "conda", "mamba",
	"micromamba", "numactl", "taskset", "nice", "ionice", "nohup", "time", "timeout", "stdbuf", "setsid", "node", "go",
}

// launcherModules are modules of Python that do the same.
var launcherModules = []string{"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner"}

// verbs of launchers are followed by the program or its options.
var verbs = []string{"run", "launch", "exec"}

// programOf returns what a command runs in the end: a script or a module, else the program or
// interpreter.
func programOf(args []string) string {
	first := filepath.Base(args[0])
	switch {
	case first == "env":
		return ofEnv(args)
	case pythons.MatchString(first):
		return ofPython(args)
	case slices.Contains(shells, first):
		return ofShell(args)
	case slices.Contains(launchers, first):
		return ofLauncher(args)
	}
	return script(first)
}

func script(file string) string {
	base := filepath.Base(file)
	if name := strings.TrimSuffix(base, filepath.Ext(base)); name != "" {
		return name
	}
	return base
}

// option is one of the command line: a word or a letter of a word.
type option struct {
	name     string // with its dashes
	value    string
	attached bool // the value is in the word of the option
}

// skipOptions returns the arguments from the first that is no option. A word like -uW is several
// options: those in letters have a value, and long ones in words. seen is called for each option
// with the arguments after its value, and ends the search by true.
func skipOptions(args []string, letters string, words []string, seen func(option, []string) bool) []string {
	for len(args) > 0 {
		word := args[0]
		if len(word) < 2 || word[0] != '-' && word[0] != '+' {
			return args
		}
		args = args[1:]
		if word == "--" {
			return args
		}
		take := func(o option) bool {
			if !o.attached && len(args) > 0 {
				o.value, args = args[0], args[1:]
			}
			return seen(o, args)
		}
		if strings.HasPrefix(word, "--") {
			name, value, attached := strings.Cut(word, "=")
			if attached || !slices.Contains(words, name) {
				if seen(option{name, value, attached}, args) {
					return nil
				}
			} else if take(option{name: name}) {
				return nil
			}
			continue
		}
		for i := 1; i < len(word); i++ {
			name, rest := word[:1]+word[i:i+1], word[i+1:]
			if strings.IndexByte(letters, word[i]) < 0 {
				if seen(option{name: name}, args) {
					return nil
				}
				continue
			}
			if take(option{name, rest, rest != ""}) {
				return nil
			}
			break
		}
	}
	return nil
}

func nothing(option, []string) bool { return false }

func ofEnv(args []string) string {
	rest := skipOptions(args[1:], "uCS", []string{"--unset", "--chdir", "--split-string"}, nothing)
	for len(rest) > 0 && strings.Contains(rest[0], "=") {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return "env"
	}
	return programOf(rest)
}

func ofPython(args []string) string {
	name := ""
	rest := skipOptions(args[1:], "cmWX", []string{"--check-hash-based-pycs"}, func(o option, after []string) bool {
		switch o.name {
		case "-c":
			name = filepath.Base(args[0])
		case "-m":
			if name = module(o.value); slices.Contains(launcherModules, o.value) {
				name = ofLauncher(append([]string{name}, after...))
			}
		}
		return name != ""
	})
	if name == "" && len(rest) > 0 && rest[0] != "-" {
		name = script(rest[0])
	}
	if name == "" {
		name = filepath.Base(args[0])
	}
	return name
}

// module is the last part of the name of a module of Python.
func module(name string) string {
	name = strings.TrimSuffix(name, ".__main__")
	return name[strings.LastIndexByte(name, '.')+1:]
}

func ofShell(args []string) string {
	program := false
	rest := skipOptions(args[1:], "oO", []string{"--rcfile", "--init-file"}, func(o option, _ []string) bool {
		program = program || o.name == "-c"
		return false
	})
	if program || len(rest) == 0 {
		return filepath.Base(args[0])
	}
	return script(rest[0])
}

// ofLauncher names the script or module after a launcher's options, which are not known in full:
// the first word that can be one, else the word after its verb, else the first file of this folder,
// else the launcher.
func ofLauncher(args []string) string {
	for i, word := range args[1:] {
		base := filepath.Base(word)
		switch before := args[i]; {
		case i > 0 && (before == "-m" || before == "--module") && !strings.HasPrefix(word, "-"):
			return module(word)
		case pythons.MatchString(base) || slices.Contains(shells, base):
			return programOf(args[1+i:])
		case slices.Contains([]string{".py", ".sh", ".pyz", ".js"}, filepath.Ext(word)) && !strings.HasPrefix(word, "-"):
			return script(word)
		}
	}
	if len(args) > 2 && slices.Contains(verbs, args[1]) && !strings.HasPrefix(args[2], "-") && args[2] != "." {
		return programOf(args[2:])
	}
	if i := slices.IndexFunc(args[1:], func(word string) bool { return strings.HasPrefix(word, "./") }); i >= 0 {
		return script(args[1+i])
	}
	return script(args[0])
}
