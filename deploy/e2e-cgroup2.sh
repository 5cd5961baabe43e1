#!/usr/bin/env bash
# Runs the tests of agent/proc on a kernel that has control groups of version 2: make e2e SUITE=cgroup2. A machine has
# the version that its system has mounted, often 1. So this boots a kernel of its own in an emulator, with a file system
# in memory that holds the tests and what they start. init.sh runs them at the top of the hierarchy, and in a group that
# is delegated to them. Each must pass there: none may be skipped, or say that something is not proved.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh kernel
python='TestASpare|TestSpares' # the tests that need Python are left out

dir=$(mktemp -d /tmp/regroup-cgroup2-XXXXXX)
trap 'rm -rf "$dir"' EXIT
root=$dir/root
umask 022
mkdir -p "$root"/{bin,proc,sys,dev,root,tests}
mkdir -m 0777 "$root/tmp"
install -m 0755 e2e/cgroup2/init.sh "$root/init"
CGO_ENABLED=0 go test -c -o "$root/tests/proc.test" ./agent/proc
for program in sh mount uname stat mkdir cat sleep setsid prlimit env tail head wc kill seq cut tr yes grep sort id pwd true chmod mkfifo readlink rm ln; do
  path=$(type -P "$program")
  cp -L "$path" "$root/bin/$program"
  # A program with libraries names them with their paths.
  { ldd "$path" 2>/dev/null || true; } | grep -oE '/[^ ]+' | while read -r library; do
    [ -e "$root$library" ] || install -D "$library" "$root$library"
  done
done
(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) >"$dir/files"

# A kernel that hangs (a soft lockup) says where, and ends the machine.
timeout 480 qemu-system-x86_64 -machine accel=tcg -smp 2 -m 1G -display none -monitor none -serial stdio -nic none -no-reboot \
  -kernel .tools/linux/vmlinuz -initrd "$dir/files" \
  -append "console=ttyS0 quiet loglevel=1 panic=-1 softlockup_panic=1 rdinit=/init -- -test.v -test.timeout=4m -test.skip=$python" \
  </dev/null | tr -d '\r' | tee "$dir/said" | grep -vE '^=== (RUN|PAUSE|CONT) '

"$root/tests/proc.test" -test.list . | grep -vE "$python" >"$dir/tests"
awk '
  FNR == NR              { tests[$1]; next }
  /^machine: begin /     { place = $3 }
  /^machine: end /       { if ($NF != 0) wrong[place ": the tests end with " $NF]; place = "" }
  /^ *--- (FAIL|SKIP): / { wrong[place ": " $0] }
  /is not proved/        { wrong[place ": " $0] }
  /^--- PASS: /          { passed[place, $3] }
  END {
    split("top delegated", places)
    for (p in places) for (t in tests) if (!((places[p], t) in passed)) wrong[places[p] ": " t " has not passed"]
    for (w in wrong) { print "cgroup2: " w; bad = 1 }
    if (!bad) print "cgroup2: " length(tests) " tests have passed at the top, and in a delegated group"
    exit bad
  }' "$dir/tests" "$dir/said"
