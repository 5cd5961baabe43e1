#!/usr/bin/env bash
# Checks the shell scripts and the units of systemd. Needs make build.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh check

shellcheck --severity=warning deploy/*.sh deploy/helm/*.sh deploy/slurm/*.sbatch .ci/run

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for unit in deploy/systemd/*.service; do # with the binary of this tree in the place of the installed one
  sed "s#/usr/local/bin/regroup#$PWD/bin/regroup#" "$unit" >"$dir/$(basename "$unit")"
done
for service in discovery scheduler rendezvous registry; do
  ln -s regroup@.service "$dir/regroup@$service.service"
done
if said=$(systemd-analyze verify --man=no "$dir"/regroup-*.service "$dir"/regroup@?*.service 2>&1) && [ -z "$said" ]; then
  exit 0
fi
echo "$said" >&2
exit 1
