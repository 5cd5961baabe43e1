# shellcheck shell=bash
# Sourced by the tests in containers, at the root of the tree: the cluster of compose.yaml with new identities, what its gateway
# says, and a job that is watched. engine_up begins; whatever happens then, all of it is taken down at the end.
. deploy/containers.sh
. deploy/until.sh

export COMPOSE_PROJECT_NAME=regroup-e2e COMPOSE_FILE=deploy/compose.yaml TAG=latest
export GATEWAY_PORT= # any: a cluster may run here already

# images CONTEXT TAG: of the binaries in CONTEXT/bin.
images() {
  docker build -q -f deploy/Dockerfile --target regroup -t "regroup:$2" "$1" >/dev/null
  docker build -q -f deploy/Dockerfile --target agent -t "regroup-agent:$2" "$1" >/dev/null
}

auth() { bin/regroup auth "$@" --auth "$AUTH" >/dev/null; }

# engine_up: an engine, and what takes down again all that is started on it.
engine_up() {
  install_engine
  install_compose
  deploy/setup.sh containers
  AUTH=$(mktemp -d)
  REGROUP_GATEWAY_TOKEN=$(head -c 24 /dev/urandom | base64 | tr -d '/+=')
  export AUTH REGROUP_GATEWAY_TOKEN
  trap down EXIT
  start_engine
}

# compose_up: the cluster, with identities and certificates of its own.
compose_up() {
  auth init --host nats-1 --host nats-2 --host nats-3 --host gateway
  for node in node-a node-b node-c; do auth issue agent "$node"; done
  chown -R 65532:65532 "$AUTH" # the user of the containers
  docker compose up -d --no-build
  until_true 120 "the gateway is ready" gateway_there
  until_true 60 "three nodes are ready" three_nodes
  echo "containers: three brokers, two replicas of each service, three nodes"
}

down() {
  local rc=$?
  if [ $rc -ne 0 ]; then
    [ -z "${job:-}" ] || api "/api/v1/jobs/$job/explain" >&2 || true
    docker compose ps --all >&2 || true
    docker compose logs --tail 30 >&2 || true
  fi
  docker compose down --volumes --timeout 2 >/dev/null 2>&1 || true
  stop_engine
  rm -rf "$AUTH" "${NEXT:-}"
  exit $rc
}

container() { docker compose ps -q "$1" | head -n 1; }
address() { docker inspect -f "{{with index .NetworkSettings.Networks \"${COMPOSE_PROJECT_NAME}_regroup\"}}{{.IPAddress}}{{end}}" "$1"; }
api() { # api PATH [ARG...]: asks the gateway, over TLS
  local path=$1
  shift
  curl -sS --max-time 10 --cacert "$AUTH/tls/ca.pem" --resolve "gateway:8443:$gateway" \
    -H "Authorization: Bearer $REGROUP_GATEWAY_TOKEN" "$@" "https://gateway:8443$path"
}
gateway_there() { gateway=$(address "$(container gateway)") && [ -n "$gateway" ] && api /readyz 2>/dev/null | grep -q '^ok'; }
says() { # says PATH FILTER [ARG...]: what jq makes of the answer is true
  local path=$1
  shift
  api "$path" 2>/dev/null | jq -e "$@" >/dev/null
}
three_nodes() { says /api/v1/nodes '[.. | objects | select(.state? == "ready")] | length == 3'; }

submit() { api /api/v1/jobs -H 'Content-Type: application/json' --data-binary "$1" | jq -r '.job // empty'; }
known_step() { step=$(api "/api/v1/jobs/$job" | jq '.step // empty') && [ -n "$step" ] && newest=$((step > newest ? step : newest)); }
six_train() { says "/api/v1/jobs/$job" '.generations[-1] | .world == 6 and .ready'; }
trains() { known_step && [ "$step" -gt "$1" ]; }
goes_on() { # goes_on WHAT: it makes more steps than it may go back by what was done to it
  until_true 30 "an answer after $1" known_step
  local at=$newest
  until_true 60 "a step after $1" trains $((at + 10))
  echo "containers: $1, and $job goes on after step $at"
}
begins() { # begins SPEC: a job that trains
  job=$(submit "$1")
  newest=0
  [ -n "$job" ] || { echo "containers: no job" >&2; exit 1; }
  until_true 120 "the job runs" trains 50
  echo "containers: $job trains"
}

ended() { says "/api/v1/jobs/$job" '.state | IN("succeeded", "failed", "stopped")'; }
ends_right() { # with every sample consumed exactly once
  until_true 240 "the job ends" ended
  api "/api/v1/jobs/$job/summary" | tee "$AUTH/summary"
  jq -e '.outcome == "succeeded" and .samples.missing == 0 and .samples.repeated == 0' "$AUTH/summary" >/dev/null
}
