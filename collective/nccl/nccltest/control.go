package nccltest

import (
	"bytes"
	"strings"

	"github.com/ebitengine/purego"
)

// Control steers the fake of this process.
type Control struct {
	// Knob sets a knob; testdata/fake says at each what it does.
	Knob func(name string, value int64)
	// Living is the number of things of a kind that were made and not freed.
	Living func(kind string) int64

	setFolder  func(path string)
	violations func(text *byte, size int32) int32
	calls      func(text *byte, size int32) int32
}

// Steer loads the driver that Driver built, or finds it loaded. Boards are kept in folder.
func Steer(driver, folder string) (*Control, error) {
	h, err := purego.Dlopen(driver, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	c := &Control{}
	purego.RegisterLibFunc(&c.Knob, h, "fakeKnob")
	purego.RegisterLibFunc(&c.Living, h, "fakeLiving")
	purego.RegisterLibFunc(&c.setFolder, h, "fakeSetFolder")
	purego.RegisterLibFunc(&c.violations, h, "fakeViolations")
	purego.RegisterLibFunc(&c.calls, h, "fakeCalls")
	c.setFolder(folder)
	return c, nil
}

// Violations is how often a caller broke a rule so far, and the last one in words.
func (c *Control) Violations() (n int, last string) {
	var text [512]byte
	n = int(c.violations(&text[0], int32(len(text))))
	return n, cut(text[:])
}

// Calls are the names of the calls since the last time, without those that only ask for the state.
func (c *Control) Calls() []string {
	text := make([]byte, 1<<16)
	c.calls(&text[0], int32(len(text)))
	return strings.Fields(cut(text))
}

func cut(text []byte) string {
	s, _, _ := bytes.Cut(text, []byte{0})
	return string(s)
}
