package agent

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/errorreport"
)

// account returns who the workers of a job run as: the job's user (processes.user), else the
// agent's default; nil = the agent's own user. The error names the field of the job.
func (o Options) account(of string) (*worker.Account, error) {
	if of == "" {
		if o.DefaultUser == "" {
			return nil, nil
		}
		a, err := accountOf(o.DefaultUser, os.Geteuid())
		if err != nil {
			return nil, fmt.Errorf("--default-user: %w", err)
		}
		return a, nil
	}
	a, err := accountOf(of, os.Geteuid())
	switch {
	case err != nil:
		return nil, fmt.Errorf("processes.user: %w", err)
	case a != nil && a.UID == 0 && o.DefaultUser != "":
		return nil, errors.New("processes.user: this node's agent has a --default-user and starts no worker as root: name another user")
	}
	return a, o.mayBeOf(a)
}

// mayBeOf refuses a group that the job names and that its user is not in, unless the agent allows
// it: a group like shadow or docker has the rights of root. Where jobs may run as root they may
// have any.
func (o Options) mayBeOf(a *worker.Account) error {
	if o.DefaultUser == "" || a.GID == a.Own || slices.Contains(a.Groups, a.GID) {
		return nil
	}
	allowed := o.AllowGroups
	if _, group, ok := strings.Cut(o.DefaultUser, ":"); ok {
		allowed = append(slices.Clone(allowed), group)
	}
	for _, name := range allowed {
		if g, err := groupOf(name); err == nil && g == a.GID {
			return nil
		}
	}
	return fmt.Errorf("processes.user: %s is not in the group %d, and this node's agent allows it to nobody else: leave the group out, or give the agent --allow-group", a.Name, a.GID)
}

// accountOf finds a user written as name or name:group, or their numbers. A process that is not
// root can run as no other user.
func accountOf(text string, euid int) (*worker.Account, error) {
	name, group, hasGroup := strings.Cut(text, ":")
	u, err := user.Lookup(name)
	if _, number := strconv.ParseUint(name, 10, 32); err != nil && number == nil {
		if u, err = user.LookupId(name); err != nil { // containers often have users without names
			u, err = &user.User{Uid: name, Gid: name, Username: name, HomeDir: "/"}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("there is no user %s on this node", name)
	}
	a := &worker.Account{Name: u.Username, Home: u.HomeDir}
	if a.UID, err = number(u.Uid); err == nil {
		a.GID, err = number(u.Gid)
	}
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	a.Own = a.GID
	if hasGroup {
		if a.GID, err = groupOf(group); err != nil {
			return nil, err
		}
	}
	if euid != 0 && int64(a.UID) != int64(euid) {
		return nil, fmt.Errorf("it is %s, and this node's agent runs as user %d, who can start processes as nobody else: run the agent as root, or name no user", text, euid)
	}
	if ids, err := u.GroupIds(); err == nil {
		for _, id := range ids {
			if g, err := number(id); err == nil {
				a.Groups = append(a.Groups, g)
			}
		}
	}
	return a, nil
}

func groupOf(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		if id, err := number(name); err == nil {
			return id, nil
		}
		return 0, fmt.Errorf("there is no group %s on this node", name)
	}
	return number(g.Gid)
}

func number(id string) (uint32, error) {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 1<<32-1 { // -1 means no change in system calls
		return 0, fmt.Errorf("%q is no number of a user or group", id)
	}
	return uint32(n), nil
}

// another reports whether a worker runs as another user than this process.
func another(who *worker.Account) bool {
	return who.Another(os.Geteuid())
}

// prepare makes what a worker needs of the agent accessible to its user: a socket, and a directory
// for its error file. The agent's own are not.
func (a *Agent) prepare(env map[string]string, who *worker.Account) error {
	if !another(who) {
		return nil
	}
	socket, errorDir, err := a.api.Open(int(who.UID), int(who.GID))
	if err != nil {
		return errcode.Errorf(errcode.Internal, "agent: a socket for user %s: %w", who.Name, err)
	}
	env["REGROUP_SOCKET"] = socket
	if id := env[worker.EnvIncarnation]; env[errorreport.Env] != "" {
		env[errorreport.Env] = errorDir + "/" + id + ".json"
	}
	return nil
}
