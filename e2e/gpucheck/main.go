// Command gpucheck shows on a machine with a GPU and the real libraries what the ABI
// conformance tests of collective/nccl and collective/gpu cannot: that NCCL, the driver and these
// packages work together. One GPU is enough; two ranks then share it where NCCL
// permits. It prints a table. It exits with 0, with 1 if something that must work does not,
// with 2 for wrong flags, and with 3, after one line that says why, where there is no GPU or
// no NCCL, so that nothing was checked.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/regroup-io/regroup/collective/nccl"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == rankCommand {
		if err := playRank(os.Args[2:]); err != nil {
			fmt.Println("failed", err)
			os.Exit(bad)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout))
}

// settings are those of the command and of its ranks.
type settings struct {
	bytes         int
	limit, notice time.Duration
	device        int
	search        string
}

func (s *settings) flags(name, search string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.IntVar(&s.bytes, "bytes", 256<<20, "size of the large buffers; a multiple of 4")
	f.DurationVar(&s.limit, "limit", 2*time.Minute, "time limit of one check")
	f.DurationVar(&s.notice, "notice", 3*time.Second, "how long NCCL gets to notice a killed process by itself")
	f.IntVar(&s.device, "device", 0, "the GPU")
	f.StringVar(&s.search, "search", search, "folders of libnccl.so.2, separated by colons")
	return f
}

func (s settings) open() (*nccl.Library, error) {
	return nccl.Open(nccl.Options{Search: filepath.SplitList(s.search)})
}

// Exit codes.
const (
	good    = 0
	bad     = 1
	misused = 2
	unarmed = 3 // the machine has no GPU or no NCCL
)

// run runs all checks and returns the exit code.
func run(args []string, out io.Writer) int {
	var s settings
	flags := s.flags("gpucheck", pipDirs())
	flags.SetOutput(out)
	if err := flags.Parse(args); err != nil {
		return misused
	}
	if s.bytes < 4096 || s.bytes%4 != 0 {
		fmt.Fprintln(out, "-bytes must be a multiple of 4, and at least 4096")
		return misused
	}
	l, err := s.open()
	if err != nil {
		fmt.Fprintln(out, "nothing was checked:", strings.Join(strings.Fields(err.Error()), " "))
		return unarmed
	}
	t := &table{out: out}
	t.line("what", "result", "detail")
	libraries(t, l)
	single(t, l, s)
	pairs(t, l, s)
	engines(t, s)
	return t.close()
}

// pipDirs returns the directories where pip installs NCCL.
func pipDirs() string {
	places := []string{
		"/usr/lib/python3*/site-packages", "/usr/local/lib/python3*/site-packages", "/usr/local/lib/python3*/dist-packages",
		"/opt/*/lib/python3*/site-packages",
	}
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		places = append([]string{filepath.Join(venv, "lib/python3*/site-packages")}, places...)
	}
	var dirs []string
	for _, place := range places {
		found, err := filepath.Glob(filepath.Join(place, "nvidia/nccl/lib"))
		if err == nil { // otherwise there is no such directory
			dirs = append(dirs, found...)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// libraries reports which libraries were found.
func libraries(t *table, l *nccl.Library) {
	cuda, lib := l.From()
	t.must("NCCL "+l.Version().String(), lib, nil)
	t.must("CUDA driver "+l.Driver(), cuda, nil)
	list, err := l.Devices()
	t.must("GPUs", fmt.Sprintf("%d", len(list)), err)
	for _, d := range list {
		t.must(fmt.Sprintf("GPU %d", d.Ordinal), fmt.Sprintf("%s, %.1f GiB, %s", d.Name, float64(d.Bytes)/(1<<30), d.UUID), nil)
	}
	for _, f := range l.Features() {
		if f.Present {
			t.must(f.Name, fmt.Sprintf("since %v", f.Since), nil)
		} else {
			t.cannot(f.Name, fmt.Sprintf("came with NCCL %v", f.Since))
		}
	}
	t.must("reform without an id", "by: "+string(l.ReformsBy()), nil)
}

// within is a context for one check.
func (s settings) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.limit)
}

// table prints a line per check as soon as it is known: a hang then shows where.
type table struct {
	out                   io.Writer
	passed, absent, wrong int
}

func (t *table) line(what, result, detail string) {
	fmt.Fprintf(t.out, "%-38s %-18s %s\n", what, result, strings.Join(strings.Fields(detail), " "))
}

// must adds a check that every machine passes.
func (t *table) must(what, detail string, err error) bool {
	if err != nil {
		t.wrong++
		t.line(what, "FAILED", err.Error())
		return false
	}
	t.passed++
	t.line(what, "ok", detail)
	return true
}

// may adds a check that depends on the machine.
func (t *table) may(what, detail string, err error) {
	if err != nil {
		t.cannot(what, err.Error())
		return
	}
	t.must(what, detail, nil)
}

func (t *table) cannot(what, reason string) {
	t.absent++
	t.line(what, "not possible here:", reason)
}

func (t *table) close() int {
	fmt.Fprintf(t.out, "%d ok, %d not possible here, %d FAILED\n", t.passed, t.absent, t.wrong)
	if t.wrong > 0 {
		return bad
	}
	return good
}
