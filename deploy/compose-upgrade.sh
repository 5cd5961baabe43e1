#!/usr/bin/env bash
# TAG=NEWER deploy/compose-upgrade.sh [--services | SERVICE...]: replaces the containers of a running compose.yaml by those of
# images with another tag, one at a time and in the order of docs/upgrade.md. The next one ends when the one before is healthy: a
# broker is once it has everything that was stored while it was away, and none ends before all are. Give the variables that
# `docker compose up` had. If it fails, mend what it says and start it again, or go back by the older TAG. --services only prints
# what it replaces, in order.
set -euo pipefail
shopt -s inherit_errexit
: "${TAG:?the tag of the images to run}"
export TAG COMPOSE_FILE=${COMPOSE_FILE:-$(dirname "$0")/compose.yaml}

services=$(docker compose config --services | sort)
services=$(for these in init 'discovery|scheduler|rendezvous|registry' gateway 'node-.*' 'nats-.*'; do
  grep -xE "$these" <<<"$services" || true # there may be none
done)
case ${1:-} in
--services)
  echo "$services"
  exit
  ;;
?*) services=$* ;;
esac

for image in $(docker compose config --images | sort -u); do
  docker image inspect "$image" >/dev/null 2>&1 || { echo "upgrade: there is no image $image: build or load it first" >&2; exit 1; }
done

up() { docker compose --progress quiet up -d --no-build --no-deps --no-recreate --wait --wait-timeout 1800 "$@"; }
mapfile -t brokers < <(docker compose config --services | grep -xE 'nats-.*' | sort)
for service in $services; do
  if [ "$service" = init ]; then # changes the streams to what the newer version needs
    docker compose run --rm --no-deps -T init
    echo "upgrade: the streams are those of $TAG"
    continue
  fi
  containers=$(docker compose ps --all -q "$service")
  for one in $containers; do
    case $service in nats-*) up "${brokers[@]}" ;; esac
    name=$(docker inspect -f '{{slice .Name 1}}' "$one")
    docker stop "$one" >/dev/null
    docker rm "$one" >/dev/null
    up "$service"
    echo "upgrade: $name was replaced by one of $TAG"
  done
  up "$service" # also what an attempt that failed has removed
done
