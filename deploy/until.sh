# shellcheck shell=bash
# Sourced by the end-to-end tests.

# until_true SECONDS WHAT COMMAND...: waits until the command succeeds; fails with WHAT after the time.
until_true() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $limit ] || { echo "$what did not happen" >&2; return 1; }
    sleep 0.2
  done
}
