package gpus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/limits"
)

// Health configures how GPUs are watched.
type Health struct {
	Every time.Duration // interval of readings
	Log   string        // the kernel's messages, /dev/kmsg; empty = they are not read
	// Uncorrected is how many uncorrected errors of its memory, since the driver was loaded, a GPU
	// may have before they count as a fault.
	Uncorrected uint64
	Logger      *slog.Logger
}

// watcher keeps what is known of GPUs.
type watcher struct {
	h       Health
	all     []devices.GPU
	ids     []string          // theirs
	device  []string          // of each, the id of the GPU that it is, or is an instance of; empty = not known yet
	bus     map[string]string // from addresses on the PCI bus to ids of GPUs, as nvidia-smi has told once
	parents map[string]string // from ids of instances to those of their GPUs
	xids    []xids
	logged  string
}

// xids are the driver's messages about one GPU.
type xids struct {
	read   bool // its messages are read
	count  uint64
	newest int
}

// Watch reads the state of GPUs at intervals, and hears of what the driver says about them, until
// ctx ends. It calls changed with all of them after each reading, and at once when one has shown a
// fault:
//
//	nvidia-smi does not list it any more, or says that it is lost
//	the driver has reported an error after which it must be reset (see fatal)
//	its memory has had too many errors that were not corrected
//
// What cannot be read is absent. Without nvidia-smi all is.
func Watch(ctx context.Context, h Health, all []devices.GPU, changed func(gpus []devices.GPU, fault bool)) {
	w := &watcher{h: h, all: slices.Clone(all), device: make([]string, len(all)), bus: map[string]string{}, xids: make([]xids, len(all))}
	for _, g := range all {
		w.ids = append(w.ids, g.ID)
	}
	said := make(chan message)
	if h.Log != "" {
		stop, err := follow(ctx, h.Log, said)
		if err != nil {
			h.Logger.Warn("errors that the driver of the GPUs reports (Xid) are not seen: the kernel's messages cannot be read", "file", h.Log, "reason", err)
		} else {
			for i := range w.xids {
				w.xids[i].read = true
			}
			defer stop()
		}
	}
	// nvidia-smi may hang just when a GPU fails: what the driver says does not wait for it.
	tables, done := make(chan answer), make(chan struct{})
	defer func() { <-done }()
	reading, end := context.WithCancel(ctx)
	defer end()
	go func() {
		defer close(done)
		w.ask(reading, tables)
	}()
	heard, first := said, true
	said = nil // its messages name addresses, which the first table has
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-tables:
			before := faults(w.all)
			w.apply(a)
			changed(slices.Clone(w.all), !slices.Equal(before, faults(w.all)))
			if first {
				said, first = heard, false
			}
		case m, open := <-said:
			if !open {
				said = nil
				h.Logger.Warn("errors that the driver of the GPUs reports (Xid) are not seen any more", "file", h.Log)
				for i := range w.xids {
					w.xids[i].read = false
				}
				continue
			}
			if fault, ours := w.hear(m); ours {
				changed(slices.Clone(w.all), fault)
			}
		}
	}
}

// answer is what nvidia-smi has said.
type answer struct {
	table   string
	parents map[string]string // see watcher; nil = it was not asked, or not answered
	err     error
}

// ask asks nvidia-smi at intervals, until ctx ends.
func (w *watcher) ask(ctx context.Context, tables chan<- answer) {
	divided := slices.ContainsFunc(w.ids, func(id string) bool { return strings.HasPrefix(id, "MIG-") })
	tick := time.NewTicker(w.h.Every)
	defer tick.Stop()
	for {
		var a answer
		limited, cancel := context.WithTimeout(ctx, listWithin)
		if divided {
			a.parents = parentsOf(limited)
			divided = a.parents == nil
		}
		a.table, a.err = output(limited, "--query-gpu="+fields, "--format=csv,noheader,nounits")
		cancel()
		select {
		case tables <- a:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// faults returns the reasons why GPUs are at fault.
func faults(all []devices.GPU) (reasons []string) {
	for _, g := range all {
		reason := ""
		if g.Fault != nil {
			reason = g.Fault.Reason
		}
		reasons = append(reasons, reason)
	}
	return reasons
}

// fields are what is asked of nvidia-smi for each GPU. Drivers of the last ten years know all.
const fields = "uuid,pci.bus_id,memory.used,utilization.gpu,temperature.gpu,ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total"

// gone is how nvidia-smi says that it cannot reach one of the GPUs. It lists none then.
//
//	Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU
var gone = regexp.MustCompile(`Unable to determine the device handle for GPU *([0-9A-Fa-f]+:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\.[0-9A-Fa-f]: *(.{0,80})`)

// apply takes what nvidia-smi has said of all GPUs.
func (w *watcher) apply(a answer) {
	if a.parents != nil {
		w.parents = a.parents
	}
	now := time.Now().UTC().Truncate(time.Second)
	for i := range w.all {
		w.all[i].Reading = nil
	}
	rows, err := [][]string(nil), a.err
	if err == nil {
		rows, err = rowsOf(a.table)
	}
	if err != nil {
		if text := err.Error(); text != w.logged {
			w.logged = text
			w.h.Logger.Warn("the state of the GPUs is unknown", "reason", err)
		}
		if m := gone.FindStringSubmatch(err.Error()); m != nil {
			w.fault(w.bus[address(m[1])], now, "nvidia-smi cannot reach it: "+strings.TrimSpace(m[2]))
		}
		return
	}
	w.logged = ""
	seen := map[string]bool{}
	for row, f := range rows {
		id := f[0]
		if unread, ok := strings.CutPrefix(id, "["); ok { // [GPU is lost], [Unknown Error]
			id = w.bus[address(f[1])]
			seen[id] = true
			w.fault(id, now, "nvidia-smi cannot read it: "+strings.TrimSuffix(unread, "]"))
			continue
		}
		seen[id] = true
		w.bus[address(f[1])] = id
		for i, g := range w.all {
			if w.device[i] == "" && (w.parents[g.ID] == id || w.parents[g.ID] == "" && (strings.HasPrefix(id, g.ID) || g.ID == strconv.Itoa(row))) {
				w.device[i] = id
			}
			if w.device[i] == id {
				w.note(i, f, now)
			}
		}
	}
	for _, id := range w.device {
		if id != "" && !seen[id] {
			w.fault(id, now, "nvidia-smi does not list it any more")
		}
	}
}

// rowsOf reads the table of the state of GPUs. One without a row, or with something else, says
// nothing about any GPU: it may not be the table.
func rowsOf(table string) (rows [][]string, err error) {
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) != strings.Count(fields, ",")+1 || !strings.HasPrefix(f[0], "GPU-") && !strings.HasPrefix(f[0], "[") {
			return nil, fmt.Errorf("nvidia-smi: %q is not the state of a GPU", strings.TrimSpace(line))
		}
		rows = append(rows, f)
	}
	if len(rows) == 0 {
		return nil, errors.New("nvidia-smi lists no GPU")
	}
	return rows, nil
}

// parentsOf finds the GPUs of instances; nil = nvidia-smi does not answer.
func parentsOf(ctx context.Context) map[string]string {
	lines, err := output(ctx, "-L")
	if err != nil {
		return nil
	}
	parents, parent := map[string]string{}, ""
	for line := range strings.Lines(lines) {
		_, id, ok := strings.Cut(strings.TrimRight(line, ")\n"), "(UUID: ")
		switch {
		case !ok:
		case strings.HasPrefix(line, "GPU "):
			parent = id
		default:
			parents[id] = parent
		}
	}
	return parents
}

// note records a row of the table for the GPU with number i.
func (w *watcher) note(i int, f []string, now time.Time) {
	g := &w.all[i]
	r := &devices.Reading{At: now, Celsius: number[int](f[4]), Corrected: number[uint64](f[5]), Uncorrected: number[uint64](f[6])}
	if w.parents[g.ID] == "" { // what an instance uses is not in the table
		r.UsedMiB, r.BusyPercent = number[int](f[2]), number[int](f[3])
	}
	if x := w.xids[i]; x.read {
		r.Xids, r.LastXid = &x.count, x.newest
	}
	g.Reading = r
	if n := r.Uncorrected; n != nil && *n > w.h.Uncorrected {
		reason := fmt.Sprintf("%d errors of its memory were not corrected since its driver was loaded", *n)
		if g.Fault == nil || g.Fault.Reason != reason { // otherwise nothing has happened since
			g.Fault = &devices.Fault{At: now, Reason: reason}
		}
	}
}

// number reads a number; nil for [N/A] and the like.
func number[N int | uint64](text string) *N {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil {
		return nil
	}
	v := N(n)
	return &v
}

// fault records a fault of a GPU, which may be several slots: its instances.
func (w *watcher) fault(id string, at time.Time, reason string) (ours bool) {
	for i := range w.all {
		if id != "" && w.device[i] == id {
			w.all[i].Fault, ours = &devices.Fault{At: at, Reason: limits.Shorten(reason, limits.Word.Max)}, true
		}
	}
	return ours
}

// hear records a message of the driver.
func (w *watcher) hear(m message) (fault, ours bool) {
	id := w.bus[m.address]
	for i := range w.all {
		if id == "" || w.device[i] != id {
			continue
		}
		ours = true
		x := &w.xids[i]
		x.count++
		x.newest = m.xid
		if r := w.all[i].Reading; r != nil {
			with := *r
			count := x.count
			with.Xids, with.LastXid = &count, m.xid
			w.all[i].Reading = &with
		}
	}
	if ours && m.fatal() {
		w.fault(id, time.Now().UTC(), m.String())
		return true, true
	}
	if ours {
		w.h.Logger.Info("the driver has reported an error of a GPU", "gpu", id, "xid", m.xid, "text", m.text)
	}
	return false, ours
}
