package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// The neighbours of a rank are those at distances of 1, 2, 4 and so on around the ring:
// it dials the ones ahead of it and is dialled by the ones behind. So a generation of n
// ranks has n log2 n links, and whatever one rank says reaches all in log2 n hops.

// distances calls do for every distance to a neighbour.
func (c *Communicator) distances(do func(d int)) {
	for d := 1; d < c.opt.World; d *= 2 {
		do(d)
	}
}

// isBehind tells whether a rank is a neighbour that dials this one.
func (c *Communicator) isBehind(rank int) bool {
	d := (c.opt.Rank - rank + c.opt.World) % c.opt.World
	return d > 0 && d&(d-1) == 0
}

// connect returns when all neighbours are connected, or the failure.
func (c *Communicator) connect(ctx context.Context) error {
	// Ends with life and not with ctx, whose end is turned into a failure first: the
	// peer that is being dialled is then told of it.
	dialing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var dials sync.WaitGroup
	c.distances(func(d int) {
		rank := (c.opt.Rank + d) % c.opt.World
		dials.Go(func() {
			conn, err := c.dial(dialing, rank, forRing, 0)
			switch {
			case err == nil:
				c.attach(conn, rank, c.ahead)
			case c.Failed() == nil && ctx.Err() == nil:
				c.failDial(rank, err)
			}
		})
	})
	defer dials.Wait()
	select {
	case <-c.joined:
		return c.Failed()
	case <-c.life.Done():
	case <-ctx.Done():
		cause := fmt.Errorf("%s: %w", c.missing(), context.Cause(ctx))
		c.fail(&AbortedError{Rank: c.opt.Rank, Generation: c.opt.Generation, Cause: cause})
	}
	return c.Failed()
}

// failDial fails the generation because a neighbour can not be had.
func (c *Communicator) failDial(rank int, err error) {
	switch {
	case isVerdict(err):
		c.fail(err) // it told how the generation ended there
	case errors.Is(err, ErrRefused), exhausted(err):
		c.fail(&AbortedError{Rank: c.opt.Rank, Generation: c.opt.Generation, Cause: err})
	default:
		c.blame(rank, err)
	}
}

// missing names a neighbour that is not there.
func (c *Communicator) missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := "all neighbours are there"
	c.distances(func(d int) {
		ahead, behind := (c.opt.Rank+d)%c.opt.World, (c.opt.Rank-d+c.opt.World)%c.opt.World
		if c.ahead[ahead] == nil {
			text = fmt.Sprintf("rank %d is not there", ahead)
		}
		if c.behind[behind] == nil {
			text = fmt.Sprintf("rank %d is not there", behind)
		}
	})
	return text
}

// attach makes a connection a link and starts its two goroutines.
func (c *Communicator) attach(conn net.Conn, peer int, links map[int]*link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := newLink(c, conn, peer)
	if c.closing.Load() {
		// The peer was welcomed a moment ago. Without a word it would blame us.
		_ = conn.SetWriteDeadline(time.Now().Add(sayAbort))
		_ = l.send(head{kind: frameAbort}, c.verdict())
		_ = conn.Close()
		return
	}
	links[peer] = l
	if c.life.Err() != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(sayAbort))
	}
	// A communicator that has failed in the meantime starts them all the same: the
	// writer then has just one thing to say.
	c.tasks.Go(l.write)
	c.tasks.Go(l.read)
	count := 0
	c.distances(func(int) { count++ })
	if len(c.ahead) == count && len(c.behind) == count {
		close(c.joined)
	}
}

func (c *Communicator) links() []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*link, 0, len(c.ahead)+len(c.behind))
	for _, links := range []map[int]*link{c.ahead, c.behind} {
		for _, l := range links {
			all = append(all, l)
		}
	}
	return all
}

// left tells whether a neighbour has said goodbye.
func (c *Communicator) left(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, links := range []map[int]*link{c.ahead, c.behind} {
		if l := links[rank]; l != nil && l.left.Load() {
			return true
		}
	}
	return false
}

// departed tells whoever waits for something of a rank that there will be no more.
func (c *Communicator) departed(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.path(rank)
	if p.taken != 1<<c.opt.Streams-1 {
		p.goneOnce.Do(func() { close(p.gone) })
	}
	if c.local != nil && c.isLocal(rank) {
		c.local.MarkLeft(rank - c.leader())
	}
}
