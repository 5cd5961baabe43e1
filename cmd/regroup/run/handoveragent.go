package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// answerWithin bounds one call.
const answerWithin = 5 * time.Second

// agent is one that may be on this machine.
type agent struct {
	node   ident.NodeID
	socket string
}

// post sends an environment to an agent, if it is one of this user. A socket of another machine
// cannot be connected to, also on a file system that both have.
func (a agent) post(ctx context.Context, e workerprotocol.SubmitEnvironment) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
	if err != nil {
		return fmt.Errorf("the agent of %s is not on this machine, or of another user or state folder", a.node)
	}
	defer func() { _ = conn.Close() }()
	if err := ofThisUser(conn); err != nil {
		return fmt.Errorf("the agent of %s: %w", a.node, err)
	}
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+workerprotocol.PathEnvironment, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("the agent of %s has not answered: %w", a.node, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	var refused workerprotocol.Error
	if err := json.NewDecoder(res.Body).Decode(&refused); err != nil || refused.Message == "" {
		return fmt.Errorf("the agent of %s answers with %s", a.node, res.Status)
	}
	return errcode.Errorf(errcode.Code(refused.Code), "%s", refused.Message)
}

// ofThisUser returns an error if the process that listens is of another user: it would learn what
// is in the environment.
func ofThisUser(conn net.Conn) error {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("whose it is cannot be seen")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return e
	}
	if err != nil {
		return err
	}
	if int64(peer.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("it is of user %d, and this command of user %d", peer.Uid, os.Geteuid())
	}
	return nil
}
