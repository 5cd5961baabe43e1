package nccltest

import (
	"bytes"
	"strings"

	"github.com/ebitengine/purego"
)

// Control controls the fake of this process.
type Control struct {
	// Knob sets a knob; testdata/fake documents each.
	Knob func(name string, value int64)
	// Living is the number of objects of a kind that were created and not freed.
	Living func(kind string) int64

	setDir     func(path string)
	violations func(text *byte, size int32) int32
	calls      func(text *byte, size int32) int32
}

// Steer loads the driver that Driver built, or finds it loaded. Shared state is stored in dir.
func Steer(driver, dir string) (*Control, error) {
	h, err := purego.Dlopen(driver, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	c := &Control{}
	purego.RegisterLibFunc(&c.Knob, h, "fakeKnob")
	purego.RegisterLibFunc(&c.Living, h, "fakeLiving")
	purego.RegisterLibFunc(&c.setDir, h, "fakeSetFolder")
	purego.RegisterLibFunc(&c.violations, h, "fakeViolations")
	purego.RegisterLibFunc(&c.calls, h, "fakeCalls")
	c.setDir(dir)
	return c, nil
}

// Violations is the number of violated rules so far, and a description of the last one.
func (c *Control) Violations() (n int, last string) {
	var text [512]byte
	n = int(c.violations(&text[0], int32(len(text))))
	return n, cut(text[:])
}

// Calls are the names of the calls since the last time, without those that only query the state.
func (c *Control) Calls() []string {
	text := make([]byte, 1<<16)
	c.calls(&text[0], int32(len(text)))
	return strings.Fields(cut(text))
}

func cut(text []byte) string {
	s, _, _ := bytes.Cut(text, []byte{0})
	return string(s)
}
