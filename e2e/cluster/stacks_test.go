package cluster

import "testing"

const quit = `SIGQUIT: quit
PC=0x47f8a1 m=0 sigcode=0

goroutine 0 gp=0x1f0 m=0 mp=0x1f1 [idle]:
runtime.futex(0x1f, 0x80)
	/usr/local/go/src/runtime/sys_linux_amd64.s:557 +0x21

goroutine 21 [select, 2 minutes]:
github.com/nats-io/nats.go.(*Subscription).Next(0xc0, {0x1, 0x2})
	/root/nats.go:10 +0x1
github.com/regroup-io/regroup/jetstream.(*Conn).read(0xc0, {0x1, 0x2})
	/src/jetstream/read.go:65 +0x1
github.com/regroup-io/regroup/services/controller.(*Host[...]).watch(0xc0)
	/src/services/controller/host.go:200 +0x1
created by github.com/regroup-io/regroup/services/controller.(*Host[...]).Run in goroutine 1
	/src/services/controller/host.go:40 +0x1

goroutine 22 [chan receive]:
github.com/regroup-io/regroup/internal/wait.For(...)
	/src/internal/wait/wait.go:5
created by github.com/regroup-io/regroup/jetstream.Connect in goroutine 1
	/src/jetstream/connect.go:40 +0x1

goroutine 23 [chan receive]:
github.com/regroup-io/regroup/internal/wait.For(...)
	/src/internal/wait/wait.go:5

rax    0xca
`

func TestStacks(t *testing.T) {
	want := "1 [select, 2 minutes] github.com/nats-io/nats.go.(*Subscription).Next < jetstream.(*Conn).read < services/controller.(*Host[...]).watch\n" +
		"2 [chan receive] internal/wait.For\n"
	if got := stacks([]byte(quit)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
