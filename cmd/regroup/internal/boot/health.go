package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// WithHealth runs fn. Meanwhile it tells systemd, if that waits for it, and those who ask at the
// health endpoint, if one is configured, how the process is. It is not ready before begun, if there
// is one, has returned nil once; from then on it is while it is connected.
func (p *Process) WithHealth(ctx context.Context, begun func() error, fn func(context.Context) error) error {
	var once atomic.Bool
	ready := func() error {
		if !p.Conn.Connected() {
			return fmt.Errorf("not connected to NATS")
		}
		if begun == nil || once.Load() {
			return nil
		}
		if err := begun(); err != nil {
			return err
		}
		once.Store(true)
		return nil
	}
	return TakeNotifier().During(ctx, p.Logger, ready, func(ctx context.Context) error {
		if p.Config.Health == "" {
			return fn(ctx)
		}
		g, ctx := errgroup.WithContext(ctx)
		ctx, cancel := context.WithCancel(ctx)
		g.Go(func() error {
			defer cancel()
			return fn(ctx)
		})
		g.Go(func() error { return ServeHealth(ctx, p.Config.Health, ready) })
		return g.Wait()
	})
}

// ServeHealth serves /healthz (the process is alive) and /readyz (ready returns nil) until ctx
// ends.
func ServeHealth(ctx context.Context, address string, ready func() error) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health: %w", err)
	}
	return nil
}

// AskHealth queries the readiness of a process that runs ServeHealth.
func AskHealth(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, res.Status)
	}
	return nil
}
