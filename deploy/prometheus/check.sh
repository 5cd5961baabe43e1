#!/usr/bin/env bash
# Checks the alert rules with promtool, tries them on series, and checks what a gateway tells Prometheus while a job runs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
# shellcheck source=deploy/until.sh
. "$root/deploy/until.sh"
promtool=$root/.tools/promtool
work=$(mktemp -d)
server=
end() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" || true; }
  rm -rf "$work"
}
trap end EXIT

"$promtool" check rules "$here/rules.yaml"
"$promtool" test rules "$here/rules_test.yaml"

export REGROUP_STATE_DIR=$work/state REGROUP_GATEWAY_TOKEN=a-token-for-this-check-alone
"$root/bin/regroup" up --slots 2 --listen 127.0.0.1:0 --dashboard --log-level warn >"$work/up" 2>&1 &
server=$!
until_true 30 "the gateway" test -s "$REGROUP_STATE_DIR/gateway.json"
"$root/bin/regroup" run --recovery in-process --workers 2 -- "$root/bin/counter" -steps 20 -step-time 5ms -samples 640 -batch 32 >"$work/run" 2>&1 || { cat "$work/run" >&2; exit 1; }
url=$(sed 's/.*"url": *"\([^"]*\)".*/\1/;q' "$REGROUP_STATE_DIR/gateway.json")
curl -fsS -H "Authorization: Bearer $REGROUP_GATEWAY_TOKEN" "$url/metrics" >"$work/metrics"
"$promtool" check metrics <"$work/metrics"
grep -q '^regroup_jobs{state="succeeded"} 1$' "$work/metrics" || { echo "the job is not counted:" >&2; grep ^regroup_jobs "$work/metrics" >&2; exit 1; }
echo "prometheus: the rules and what the gateway says are right"
