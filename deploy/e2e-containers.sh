#!/usr/bin/env bash
# deploy/e2e-containers.sh [torch]: a job of a Go program, or one of PyTorch in an image that is made of Debian's packages.
# Builds the images, makes identities and certificates, and brings the compose file up. A job is submitted by curl at the
# gateway. While it trains a worker, a replica of a service, a broker and an agent's container are killed, and a
# node's network is cut for a while. The job must end right with every sample consumed exactly once. Takes everything down.
set -euo pipefail
shopt -s inherit_errexit
what=${1:-counter}
cd "$(dirname "$0")/.."
. deploy/containers.sh
. deploy/until.sh

install_engine
install_compose
start_engine

project=regroup-e2e
AUTH=$(mktemp -d)
REGROUP_GATEWAY_TOKEN=$(head -c 24 /dev/urandom | base64 | tr -d '/+=')
export AUTH REGROUP_GATEWAY_TOKEN
compose() { docker compose -p "$project" -f deploy/compose.yaml "$@"; }

down() {
  local rc=$?
  if [ $rc -ne 0 ]; then
    [ -z "${job:-}" ] || api "/api/v1/jobs/$job/explain" >&2 || true
    compose ps --all >&2 || true
    compose logs --tail 30 >&2 || true
  fi
  compose down --volumes --timeout 2 >/dev/null 2>&1 || true
  stop_engine
  rm -rf "$AUTH"
  exit $rc
}
trap down EXIT

make build
docker build -q -f deploy/Dockerfile --target regroup -t regroup . >/dev/null
case $what in
counter)
  docker build -q -f deploy/Dockerfile --target agent -t regroup-agent . >/dev/null
  program=/counter
  spec='{"name": "containers", "command": ["/counter", "-steps", "4000", "-step-time", "10ms", "-samples", "60000", "-batch", "60"],
    "workers": {"min": 2, "max": 6}, "recovery": "in-process", "data": {"samples": 60000}}'
  ;;
torch)
  make libregroup
  import_torch regroup-torch-base
  docker build -q -f deploy/Dockerfile --target regroup-torch --build-arg BASE=regroup-torch-base -t regroup-torch . >/dev/null
  docker build -q -t regroup-agent -f - examples >/dev/null <<<"FROM regroup-torch
COPY . /examples"
  program=/examples/mnist_torch/train.py
  spec='{"name": "containers", "command": ["python3", "/examples/mnist_torch/train.py", "--epochs", "20", "--step-time", "0.05"],
    "workers": {"min": 2, "max": 6}, "recovery": "in-process"}'
  ;;
*) echo "usage: $0 [torch]" >&2; exit 2 ;;
esac

auth() { bin/regroup auth "$@" --auth "$AUTH" >/dev/null; }
auth init --host nats-1 --host nats-2 --host nats-3 --host gateway
for node in node-a node-b node-c; do auth issue agent "$node"; done
chown -R 65532:65532 "$AUTH" # the user of the containers
compose up -d --no-build

container() { compose ps -q "$1" | head -n 1; }
address() { docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"; }
api() { # api PATH [ARG...]: asks the gateway, over TLS
  local path=$1
  shift
  curl -sS --max-time 10 --cacert "$AUTH/tls/ca.pem" --resolve "gateway:8443:$gateway" \
    -H "Authorization: Bearer $REGROUP_GATEWAY_TOKEN" "$@" "https://gateway:8443$path"
}
field() { grep -oE "\"$1\": *(\"[^\"]*\"|[0-9]+)" | head -n 1 | sed -E 's/^[^:]*: *"?([^"]*)"?$/\1/'; }

gateway_there() { gateway=$(address "$(container gateway)") && [ -n "$gateway" ] && api /readyz 2>/dev/null | grep -q '^ok'; }
until_true 120 "the gateway is ready" gateway_there
three_nodes() { [ "$(api /api/v1/nodes 2>/dev/null | grep -oE '"state": *"ready"' | wc -l)" = 3 ]; }
until_true 60 "three nodes are ready" three_nodes
echo "containers: three brokers, two replicas of each service, three nodes"

refused=$(curl -s -o /dev/null -w '%{http_code}' --cacert "$AUTH/tls/ca.pem" --resolve "gateway:8443:$gateway" https://gateway:8443/api/v1/jobs)
[ "$refused" = 401 ] || { echo "containers: without a token the gateway answers $refused" >&2; exit 1; }

submit() { api /api/v1/jobs -H 'Content-Type: application/json' --data-binary "$1" | field job; }
job=$(submit "$spec")
[ -n "$job" ] || { echo "containers: no job" >&2; exit 1; }
known_step() { step=$(api "/api/v1/jobs/$job" | field step) && [ -n "$step" ]; }
trains() { known_step && [ "$step" -gt "$1" ]; }
goes_on() { # goes_on WHAT: it makes more steps than can be under way after what was done to it
  until_true 30 "an answer after $1" known_step
  local at=$step
  until_true 60 "a step after $1" trains $((at + 10))
  echo "containers: $1, and $job goes on after step $at"
}
until_true 120 "the job runs" trains 50
echo "containers: $job trains"

worker=$(docker top "$(container node-a)" -eo pid,args | awk -v program="$program" 'index($0, program) {print $1; exit}')
kill -KILL "$worker"
goes_on "a worker is killed"
docker kill "$(container registry)" >/dev/null
goes_on "a replica of the registry is killed"
at=$(address "$(container node-b)")
docker network disconnect "${project}_regroup" "$(container node-b)"
goes_on "node-b is cut off"
docker network connect --ip "$at" --alias node-b "${project}_regroup" "$(container node-b)"
docker kill "$(container nats-1)" >/dev/null
goes_on "a broker is killed"
docker kill "$(container node-c)" >/dev/null
goes_on "the agent of node-c is killed"

ended() { api "/api/v1/jobs/$job" 2>/dev/null | grep -qE '"state": *"(succeeded|failed|stopped)"'; }
until_true 240 "the job ends" ended
summary=$(api "/api/v1/jobs/$job/summary")
echo "$summary"
grep -q '"outcome": *"succeeded"' <<<"$summary"
grep -q '"missing": *0' <<<"$summary"
grep -q '"repeated": *0' <<<"$summary"

if [ "$what" = torch ]; then # torch.distributed with gloo, whose group follows the members
  job=$(submit '{"name": "gloo", "command": ["python3", "/examples/ddp/train.py"], "workers": {"min": 2, "max": 4}, "recovery": "in-process"}')
  until_true 240 "the job with gloo ends" ended
  api "/api/v1/jobs/$job/summary" | tee "$AUTH/summary"
  grep -q '"outcome": *"succeeded"' "$AUTH/summary"
fi
echo "containers: ok in $SECONDS s"
