package local

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// machine is one with `regroup up`, whose folder and environment are not those of its user.
type machine struct {
	t         *testing.T
	dir       string
	user      string   // folder in which commands run
	env       []string // of commands
	processes string   // a line of each process of a worker: folder, value of WHO, process id
	end       string   // the file that ends them
	up        *started
}

// secretly is in the environment of the user.
const secretly = "a-secret-of-the-user"

// secret admits to the server.
const secret = "REGROUP_SECRET=of-the-server"

func newMachine(t *testing.T) *machine {
	dir := t.TempDir()
	m := &machine{t: t, dir: dir, user: filepath.Join(dir, "user"), processes: filepath.Join(dir, "processes"), end: filepath.Join(dir, "end")}
	programs := filepath.Join(dir, "programs")
	for _, d := range []string{m.user, programs, filepath.Join(dir, "server")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := "#!/bin/sh\necho ready in \"$PWD\" of \"$WHO\"\necho \"$(pwd) $WHO $$\" >> " + m.processes + "\nuntil test -e " + m.end + "; do sleep 0.05; done\n"
	if err := os.WriteFile(filepath.Join(programs, "train-here"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	m.env = []string{"WHO=user", secret, "HF_TOKEN=" + secretly, "PATH=" + programs + ":" + os.Getenv("PATH")}
	m.serve("server")
	return m
}

// serve starts `regroup up` in a folder of that name.
func (m *machine) serve(name string) {
	m.t.Helper()
	m.up = beginIn(m.t, m.dir, filepath.Join(m.dir, name), []string{"WHO=" + name, secret}, "up", "--slots", "2")
	m.up.prints("regroup is up")
}

func (m *machine) begin(args ...string) *started {
	m.t.Helper()
	return beginIn(m.t, m.dir, m.user, m.env, args...)
}

// does runs a command to its end and returns its output, standard error included.
func (m *machine) does(args ...string) string {
	m.t.Helper()
	s := m.begin(args...)
	if code := s.ends(patience); code != 0 {
		m.t.Fatalf("%v exits %d:\n%s", args, code, s.printed())
	}
	return s.printed()
}

// began waits for so many processes of workers and returns the newest; each must have run in a
// folder, with a value of WHO.
func (m *machine) began(n int, folder, who string) process {
	m.t.Helper()
	var newest process
	eventually(m.t, patience, func() (bool, string) {
		b, err := os.ReadFile(m.processes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err.Error()
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		if len(lines) < n || len(b) == 0 {
			return false, fmt.Sprintf("%d processes have not begun: %q\n%s", n, lines, m.up.printed())
		}
		for _, l := range lines {
			f := strings.Fields(l)
			if len(f) != 3 || f[0] != folder || f[1] != who {
				m.t.Fatalf("a process says %q, want it in %s of %s", l, folder, who)
			}
			newest = processOf(atoi(f[2]))
		}
		return true, ""
	})
	return newest
}

// environments returns the files that agents keep.
func (m *machine) environments() []string {
	all, err := filepath.Glob(filepath.Join(m.dir, "state", "agents", "*", "submitted", "*"))
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// TestAJobRunsWhereItIsSubmitted: in the folder and the environment of the command, also after a
// failure, and after the power failed and the server was started elsewhere. They are in one file
// that nobody else can read, until the job ends, and in nothing that a broker has.
func TestAJobRunsWhereItIsSubmitted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	said := strings.Split(strings.TrimSpace(m.does("submit", "--workers", "2", "--max-restarts", "100", "--", "train-here")), "\n")
	job := said[len(said)-1]
	if err := syscall.Kill(m.began(2, m.user, "user").pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.began(4, m.user, "user")
	files := m.environments()
	if len(files) != 1 {
		t.Fatalf("files %q, want one", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	if b, err := os.ReadFile(files[0]); err != nil || len(b) == 0 {
		t.Error(err)
	}

	m.up.signal(syscall.SIGKILL)
	m.up.ends(patience)
	if err := os.Mkdir(filepath.Join(m.dir, "another"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.serve("another")
	m.began(6, m.user, "user")

	for _, args := range [][]string{{"status", job, "-o", "json"}, {"events", job, "-o", "json"}} {
		if out := m.does(args...); strings.Contains(out, secretly) || !strings.Contains(out, "train-here") {
			t.Errorf("%v must show the command and not the environment:\n%s", args, out)
		}
	}
	touch(t, m.end)
	eventually(t, patience, func() (bool, string) {
		out := m.does("status", job, "-o", "json")
		return strings.Contains(out, `"succeeded"`), out
	})
	eventually(t, patience, func() (bool, string) {
		left := m.environments()
		return len(left) == 0, fmt.Sprintf("the environment outlives its job: %q", left)
	})
	m.up.signal(os.Interrupt)
	m.up.ends(patience)
	err := filepath.WalkDir(filepath.Join(m.dir, "state"), func(path string, f fs.DirEntry, err error) error {
		if err != nil || !f.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secretly)) {
			t.Errorf("the environment is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestARunBesideAServer is as one without: the same folder, environment and programs. What the job
// says wins.
func TestARunBesideAServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	touch(t, m.end)
	if out := m.does("run", "--", "train-here"); !strings.Contains(out, "ready in "+m.user+" of user") || strings.Contains(out, "workers run on") {
		t.Errorf("run says\n%s", out)
	}
	job := filepath.Join(m.dir, "job.yaml")
	if err := os.WriteFile(job, []byte("name: file\ncommand: [train-here]\nworkers: {min: 1, max: 1}\nworkdir: "+m.dir+"\nenv: {WHO: job}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-f", job}, {"--workdir", m.dir, "--env", "WHO=job", "--", "train-here"}} {
		if out := m.does(append([]string{"run"}, args...)...); !strings.Contains(out, "ready in "+m.dir+" of job") {
			t.Errorf("with a folder and a variable of its own run says\n%s", out)
		}
	}
	if left := m.environments(); len(left) > 0 {
		t.Errorf("environments are left: %q", left)
	}
}

// TestWorkersOfSeveralMachinesAreAlike: the agent of another state folder stands for one of another
// machine. A job that may run there inherits nothing, and one line says so; if that node comes
// later, its worker does.
func TestWorkersOfSeveralMachinesAreAlike(t *testing.T) {
	m := newMachine(t)
	m.does("submit", "--workers", "3", "--max-restarts", "100", "--", "train-here") // it waits for the third slot
	host := strings.TrimSpace(m.does("node", "ls", "-o", "name"))
	other := filepath.Join(m.dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	agent := beginIn(t, m.dir, other, []string{"WHO=agent", secret, "PATH=" + filepath.Join(m.dir, "programs") + ":" + os.Getenv("PATH")},
		"agent", "--state-dir", filepath.Join(m.dir, "elsewhere"), "--node", "zz-other", "--slots", "1", "--advertise", "127.0.0.1", "--server", m.url())
	var begun []string
	eventually(t, patience, func() (bool, string) {
		b, err := os.ReadFile(m.processes)
		begun = nil
		for l := range strings.Lines(string(b)) {
			begun = append(begun, strings.Join(strings.Fields(l)[:2], " "))
		}
		return len(begun) == 3, fmt.Sprintf("%q, %v\n%s", begun, err, agent.printed())
	})
	slices.Sort(begun)
	if want := []string{other + " agent", m.user + " user", m.user + " user"}; !slices.Equal(begun, want) {
		t.Errorf("processes run in %q, want %q", begun, want)
	}
	touch(t, m.end)
	eventually(t, patience, func() (bool, string) {
		out := m.does("logs", "train-here")
		return strings.Contains(out, "regroup: this worker has the folder and the environment of the agent of zz-other, not those in which the job was submitted"), out
	})
	out := m.does("run", "--", "sh", "-c", `echo in "$(pwd)" of "$WHO"`)
	if want := "regroup: workers run on " + host + ", zz-other in the folder, as the user and with the environment of the agent there, not of this command (the agent of zz-other is not on this machine, or of another user or state folder)"; !strings.Contains(out, want) || strings.Contains(out, "of user") {
		t.Errorf("run says\n%s\nwant\n%s", out, want)
	}
	if left := m.environments(); len(left) > 0 {
		t.Errorf("environments are left: %q", left)
	}
	if out := m.does("torchrun", "--server", m.url(), "--rdzv-id", "own", "--nnodes", "1", "--nproc-per-node", "1", "--no-python", "train-here"); !strings.Contains(out, "ready in "+m.user+" of user") {
		t.Errorf("torchrun, which has an agent of its own, says\n%s", out)
	}
}

// TestWorkersOfAnotherUserHaveTheirOwn: what is of the user of the agent is not handed to them.
func TestWorkersOfAnotherUserHaveTheirOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test has workers of another user: run it as root, as those of the network")
	}
	m := newMachine(t)
	job := filepath.Join(m.dir, "job.yaml")
	if err := os.WriteFile(job, []byte("name: nobody\ncommand: [env]\nworkers: {min: 1, max: 1}\nprocesses: {user: nobody}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := m.does("run", "-f", job)
	if !strings.Contains(out, "as nobody, in the folder and with the environment that the agent there has for that user, not of this command (workers run as nobody on ") ||
		!strings.Contains(out, "LOGNAME=nobody") || strings.Contains(out, secretly) || strings.Contains(out, "WHO=") {
		t.Errorf("run says\n%s", out)
	}
}

// url is the address of the broker, as who has its state folder knows it.
func (m *machine) url() string {
	m.t.Helper()
	printed := m.up.printed()
	_, rest, _ := strings.Cut(printed, "regroup is up: ")
	url, _, ok := strings.Cut(rest, " ")
	if !ok {
		m.t.Fatalf("up has not said its address: %s", printed)
	}
	return url
}
