#!/usr/bin/env bash
# Builds the images, brings the compose file up, submits a job, kills one agent's container in the middle of it, and
# checks that the job ends right with every sample consumed exactly once. Takes everything down again.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/containers.sh

install_engine
install_compose
start_engine

project=regroup-e2e
compose() { docker compose -p "$project" -f deploy/compose.yaml "$@"; }
regroup() { docker run --rm --network "${project}_regroup" -e REGROUP_SERVER=nats://nats:4222 regroup "$@"; }

down() {
  local rc=$?
  if [ $rc -ne 0 ]; then compose logs --tail 40 >&2 || true; fi
  compose down --volumes --timeout 2 >/dev/null 2>&1 || true
  stop_engine
  exit $rc
}
trap down EXIT

make build
docker build -q -f deploy/Dockerfile --target regroup -t regroup . >/dev/null
docker build -q -f deploy/Dockerfile --target agent -t regroup-agent . >/dev/null
compose up -d --no-build

until_true() { # until_true SECONDS WHAT COMMAND...: polls a condition
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $limit ] || { echo "containers: $what did not happen" >&2; return 1; }
    sleep 0.2
  done
}
three_nodes() { [ "$(regroup node ls -o json 2>/dev/null | grep -c '"state": *"ready"')" = 3 ]; }
until_true 60 "three nodes are ready" three_nodes
echo "containers: three nodes are ready"

job=$(regroup submit --name containers --recovery in-process --workers 2:6 --samples 60000 \
  -- /counter -steps 1500 -step-time 10ms -samples 60000 -batch 60)
running() { regroup status "$job" -o json 2>/dev/null | grep -q '"state": *"running"' && regroup events "$job" 2>/dev/null | grep -q 'worker.ready'; }
until_true 60 "the job runs" running
echo "containers: $job runs, killing node-b"
docker kill "$(compose ps -q node-b)" >/dev/null

ended() { regroup status "$job" -o json 2>/dev/null | grep -qE '"state": *"(succeeded|failed|stopped)"'; }
until_true 120 "the job ends" ended
summary=$(regroup status "$job" -o summary)
echo "$summary"
grep -q '"outcome": *"succeeded"' <<<"$summary"
grep -q '"missing": *0' <<<"$summary"
grep -q '"repeated": *0' <<<"$summary"
grep -qE '"cause": *"(worker-lost|node-lost|worker-failed)"' <<<"$summary"
echo "containers: ok"
