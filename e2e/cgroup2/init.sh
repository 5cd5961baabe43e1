#!/bin/sh
# The first process of the machine: runs the tests at the top of the hierarchy of control groups,
# and in a group that is delegated to them alone, and turns the machine off.
export PATH=/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
mkdir -p /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "machine: Linux $(uname -r), control groups: $(stat -f -c %T /sys/fs/cgroup), $(cat /sys/fs/cgroup/cgroup.controllers)"
cd /tests || exit 1

for place in top delegated; do
  if [ $place = delegated ]; then
    echo "+cpu +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
    mkdir /sys/fs/cgroup/agent
  fi
  echo "machine: begin $place"
  (
    [ $place = top ] || sh -c 'echo $PPID' >/sys/fs/cgroup/agent/cgroup.procs
    exec ./proc.test "$@"
  )
  echo "machine: end $place, status $?"
done
echo o >/proc/sysrq-trigger
exec sleep 60 # until it is off
