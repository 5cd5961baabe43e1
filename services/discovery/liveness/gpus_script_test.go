package liveness_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/devices"
)

// faulty returns the GPUs of a hello that names one at fault: fault=2,20s,fell_off_the_bus is that
// of slot 2, 20 seconds after noon. There are as many as slots, or devices=N. A node without such a
// word has none.
func faulty(t *testing.T, line string, slots int) (gpus []devices.GPU) {
	t.Helper()
	text, ok := word(line, "fault=")
	if !ok {
		return nil
	}
	if n, ok := word(line, "devices="); ok {
		var err error
		if slots, err = strconv.Atoi(n); err != nil {
			t.Fatal(line, err)
		}
	}
	for i := range slots {
		gpus = append(gpus, devices.GPU{ID: fmt.Sprint("GPU-", i), Model: "H100"})
	}
	for one := range strings.SplitSeq(text, ";") {
		f := strings.SplitN(one, ",", 3)
		slot, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(line, err)
		}
		at, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(line, err)
		}
		gpus[slot].Fault = &devices.Fault{At: noon.Add(at), Reason: strings.ReplaceAll(f[2], "_", " ")}
	}
	return gpus
}
