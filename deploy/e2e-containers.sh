#!/usr/bin/env bash
# deploy/e2e-containers.sh [torch]: a job of a Go program, or one of PyTorch in an image that is made of Debian's packages.
# Builds the images, makes identities and certificates, and brings the compose file up. A job is submitted by curl at the
# gateway. While it trains a worker, a replica of a service, a broker and an agent's container are killed, and a node's network
# is cut for a while: it comes back with the same address, then with another one. The job must end right with every sample
# consumed exactly once. Takes everything down.
set -euo pipefail
shopt -s inherit_errexit
what=${1:-counter}
cd "$(dirname "$0")/.."
. deploy/composed.sh
engine_up

make build
case $what in
counter)
  images . latest
  program=/counter
  spec='{"name": "containers", "command": ["/counter", "-steps", "4000", "-step-time", "10ms", "-samples", "60000", "-batch", "60"],
    "workers": {"min": 2, "max": 6}, "recovery": "in-process", "data": {"samples": 60000}}'
  ;;
torch)
  make libregroup
  import_torch regroup-torch-base
  docker build -q -f deploy/Dockerfile --target regroup -t regroup . >/dev/null
  docker build -q -f deploy/Dockerfile --target regroup-torch --build-arg BASE=regroup-torch-base -t regroup-torch . >/dev/null
  docker build -q -t regroup-agent -f - examples >/dev/null <<<"FROM regroup-torch
COPY . /examples"
  program=/examples/mnist_torch/train.py
  spec='{"name": "containers", "command": ["python3", "/examples/mnist_torch/train.py", "--epochs", "20", "--step-time", "0.05"],
    "workers": {"min": 2, "max": 6}, "recovery": "in-process"}'
  ;;
*) echo "usage: $0 [torch]" >&2; exit 2 ;;
esac
compose_up

refused=$(curl -s -o /dev/null -w '%{http_code}' --cacert "$AUTH/tls/ca.pem" --resolve "gateway:8443:$gateway" https://gateway:8443/api/v1/jobs)
[ "$refused" = 401 ] || { echo "containers: without a token the gateway answers $refused" >&2; exit 1; }
begins "$spec"

worker=$(docker top "$(container node-a)" -eo pid,args | awk -v program="$program" 'index($0, program) {print $1; exit}')
kill -KILL "$worker"
goes_on "a worker is killed"
docker kill "$(container registry)" >/dev/null
goes_on "a replica of the registry is killed"
network=${COMPOSE_PROJECT_NAME}_regroup
at=$(address "$(container node-b)")
comes_back() { # comes_back ADDRESS: all take part again once node-b is connected
  local began=$SECONDS
  docker network connect --ip "$1" --alias node-b "$network" "$(container node-b)"
  until_true 60 "node-b is ready at $1" says /api/v1/nodes '.. | objects | select(.node? == "node-b") | .state == "ready" and .address == $at' --arg at "$1"
  until_true 60 "all take part again" six_train
  goes_on "node-b is back with $1 after $((SECONDS - began)) s"
}
docker network disconnect "$network" "$(container node-b)"
goes_on "node-b is cut off"
comes_back "$at"
docker network disconnect "$network" "$(container node-b)"
goes_on "node-b is cut off again"
comes_back 10.213.8.200 # it joins anew, because its peers cannot reach it at the address that they know
docker kill "$(container nats-1)" >/dev/null
goes_on "a broker is killed"
docker kill "$(container node-c)" >/dev/null
goes_on "the agent of node-c is killed"
ends_right

if [ "$what" = torch ]; then # torch.distributed with gloo, whose group follows the members
  job=$(submit '{"name": "gloo", "command": ["python3", "/examples/ddp/train.py"], "workers": {"min": 2, "max": 4}, "recovery": "in-process"}')
  until_true 240 "the job with gloo ends" ended
  api "/api/v1/jobs/$job/summary" | tee "$AUTH/summary"
  jq -e '.outcome == "succeeded"' "$AUTH/summary" >/dev/null
fi
echo "containers: ok in $SECONDS s"
