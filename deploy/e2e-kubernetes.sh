#!/usr/bin/env bash
# Installs the chart on a control plane of Kubernetes whose nodes are simulated (e2e/kubernetes), in a network that has but
# the loopback interface. All of its processes end with the script, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh kubernetes

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd e2e/kubernetes
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" # as the tools were built: most packages are there
go vet .
go test -c -o "$dir/kubernetes.test" .
TMPDIR=$dir unshare --map-root-user --net --pid --fork --kill-child --mount-proc \
  bash -c 'ip link set lo up && exec "$@"' - "$dir/kubernetes.test" -test.v -test.timeout 9m
