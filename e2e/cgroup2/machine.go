package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// pack writes the file system in memory.
func pack(to, tests string) error {
	var m image
	m.add("init", 0o755, script)
	for _, dir := range []string{"proc", "sys", "dev", "root"} {
		m.add(dir, os.ModeDir|0o755, nil)
	}
	m.add("tmp", os.ModeDir|0o777, nil)
	for _, p := range programs {
		if err := m.program(p); err != nil {
			return err
		}
	}
	if err := m.copy(tests, "tests/proc.test"); err != nil {
		return err
	}
	return os.WriteFile(to, m.end(), 0o600)
}

// boot runs the machine to its end, and passes on each line that it writes. A kernel that hangs (a
// soft lockup) says where, and ends the machine. The emulator ends with this process, and so with
// the thread that starts it.
func boot(ctx context.Context, kernel, files string, line func(string)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "accel=tcg", "-smp", "2", "-m", "1G", "-display", "none", "-monitor", "none",
		"-serial", "stdio", "-nic", "none", "-no-reboot", "-kernel", kernel, "-initrd", files,
		"-append", "console=ttyS0 quiet loglevel=1 panic=-1 softlockup_panic=1 rdinit=/init -- -test.v -test.timeout=4m -test.skip="+python)
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	qemu.WaitDelay = time.Second
	out, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	var noise strings.Builder
	qemu.Stderr = &noise
	if err := qemu.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line(strings.TrimRight(lines.Text(), "\r"))
	}
	if err := qemu.Wait(); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return fmt.Errorf("the emulator: %w\n%s", err, noise.String())
	}
	return nil
}
