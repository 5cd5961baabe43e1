#!/usr/bin/env bash
# Installs the chart on a control plane of Kubernetes whose nodes are simulated (e2e/kubernetes), in a network that has but
# the loopback interface; with the argument queues it runs the files of deploy/queues there. All of its processes end with
# the script, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-kubernetes}
deploy/setup.sh "$what"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd e2e/kubernetes
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" # as the tools were built: most packages are there
go vet .
go test -c -o "$dir/kubernetes.test" .
mkdir "$dir/etc" "$dir/work" # Kueue has a certificate in /etc: what is written there is gone at the end
TMPDIR=$dir unshare --map-root-user --net --pid --fork --kill-child --mount-proc \
  bash -c 'ip link set lo up && mount -t overlay -o "lowerdir=/etc,upperdir=$TMPDIR/etc,workdir=$TMPDIR/work" overlay /etc && exec "$@"' - "$dir/kubernetes.test" -test.v -test.timeout 20m -test.run "$([ "$what" = queues ] && echo TestQueues || echo TestChart)"
