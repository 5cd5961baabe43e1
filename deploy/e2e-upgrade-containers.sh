#!/usr/bin/env bash
# The cluster of compose.yaml, upgraded under a job by deploy/compose-upgrade.sh: each replica of a service, the gateway, each
# agent and each broker is replaced by a container of another image, which is built from the same tree with another version.
# The job must go on after each service, and end right with every sample consumed exactly once. Takes everything down.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
. deploy/composed.sh
engine_up

make build
images . before
NEXT=$(mktemp -d)
make build BIN="$NEXT/bin" COMMIT=next
version=$("$NEXT/bin/regroup" version -o json | jq -r .version)
images "$NEXT" after

export TAG=before
compose_up
begins '{"name": "upgraded", "command": ["/counter", "-steps", "11000", "-step-time", "10ms", "-samples", "60000", "-batch", "60"],
  "workers": {"min": 2, "max": 6}, "recovery": "in-process", "data": {"samples": 60000}}'

export TAG=none
if deploy/compose-upgrade.sh; then
  echo "containers: an upgrade to images that do not exist is not refused" >&2
  exit 1
fi
export TAG=after
runs() { # runs SERVICE: all its containers have the newer version
  local one
  for one in $(docker compose ps --all -q "$1"); do
    docker exec "$one" /regroup version | grep -qF " $version " || { echo "containers: a container of $1 is not of $version" >&2; return 1; }
  done
}
brokers_current() { # brokers_current SINCE: as the leaders of the streams say, after that time
  says /api/v1/system '.brokers | (.at | .[:19]) > $since[:19] and (.brokers | length == 3 and all(.state == "current"))' --arg since "$1"
}
new_node() { says /api/v1/nodes '.. | objects | select(.node? == $node) | .state == "ready" and .version == $version' --arg node "$1" --arg version "$version"; }
for service in $(deploy/compose-upgrade.sh --services); do
  began=$SECONDS
  deploy/compose-upgrade.sh "$service"
  took=$((SECONDS - began))
  [ "$service" != init ] || continue
  runs "$service"
  case $service in
  gateway)
    until_true 60 "the gateway is ready" gateway_there
    says /api/v1/system '.version == $version' --arg version "$version"
    ;;
  node-*) until_true 60 "$service is ready with the newer version" new_node "$service" ;;
  nats-*) until_true 60 "three brokers are current" brokers_current "$(date -u +%FT%TZ)" ;;
  esac
  until_true 60 "all take part" six_train
  goes_on "$service is replaced in $took s"
done
ends_right
jq -e '[.incidents[].cause] | all(IN("grow", "shrink"))' "$AUTH/summary" >/dev/null || { echo "containers: an upgrade was a failure of the job" >&2; exit 1; }
echo "containers: ok in $SECONDS s"
