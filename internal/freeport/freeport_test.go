package freeport_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/freeport"
	"github.com/regroup-io/regroup/internal/wait"
)

// TestNoConnectionIsGivenTheirPorts: they are outside the range that the system gives away.
func TestNoConnectionIsGivenTheirPorts(t *testing.T) {
	first, last := 32768, 60999
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(b), &first, &last); err != nil {
			t.Fatal(err)
		}
	}
	all, err := freeport.Addresses(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range all {
		_, text, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.Atoi(text)
		if err != nil || seen[a] || port >= first && port <= last {
			t.Errorf("%s: %v, chosen before: %t; the system gives away %d to %d", a, err, seen[a], first, last)
		}
		seen[a] = true
		// Another process may choose it too, and holds it until it has chosen all of its own.
		limit, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := wait.Until(limit, time.Millisecond, func() (bool, error) {
			l, err := net.Listen("tcp", a)
			if err != nil {
				return false, nil //nolint:nilerr // tried again
			}
			return true, l.Close()
		}); err != nil {
			t.Errorf("nobody can listen at %s: %v", a, err)
		}
		cancel()
	}
}
