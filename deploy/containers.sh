# shellcheck shell=bash
# Sourced: makes `docker`, `docker compose` and a running engine available on a Debian-like machine.
# Says what it does; does nothing when all is there.

need_root() { [ "$(id -u)" = 0 ] || { echo "containers: $1 needs root" >&2; exit 1; }; }

install_engine() {
  command -v dockerd >/dev/null && return
  need_root "installing docker.io"
  echo "containers: installing docker.io"
  DEBIAN_FRONTEND=noninteractive apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null
}

# Debian 12 has only the old Python compose; the plugin of Debian 13 needs nothing but libc 2.34, so it is unpacked beside it.
install_compose() {
  docker compose version >/dev/null 2>&1 && return
  if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker-compose-v2 >/dev/null 2>&1; then return; fi
  need_root "installing the compose plugin"
  echo "containers: installing the compose plugin of the next Debian release"
  local at mirror
  at=$(mktemp -d)
  # Either place may be absent, and head may end grep: neither is a failure.
  mirror=$({ grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true; } | head -n 1 | tr -d ' ')
  [ -n "$mirror" ] || { echo "containers: no Debian mirror in /etc/apt" >&2; exit 1; }
  mkdir -p "$at/lists/partial" "$at/cache/archives/partial" "$at/x"
  cp /var/lib/dpkg/status "$at/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$at/trixie.list"
  local o=(-o "Dir::Etc::sourcelist=$at/trixie.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$at/lists"
    -o "Dir::Cache=$at/cache" -o "Dir::State::status=$at/status" -o APT::Sandbox::User=root)
  apt-get "${o[@]}" -qq update
  (cd "$at" && apt-get "${o[@]}" -qq download docker-compose && for d in *.deb; do dpkg -x "$d" x; done)
  mkdir -p "${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins"
  cp "$at"/x/usr/libexec/docker/cli-plugins/docker-compose "${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins/"
  rm -rf "$at"
}

# start_engine starts an engine of our own if none answers, and remembers to stop it.
start_engine() {
  docker info >/dev/null 2>&1 && return
  need_root "starting the container engine"
  echo "containers: starting an engine"
  ENGINE_DIR=$(mktemp -d)
  dockerd --data-root "$ENGINE_DIR/data" --exec-root "$ENGINE_DIR/exec" -H "unix://$ENGINE_DIR/docker.sock" \
    --pidfile "$ENGINE_DIR/pid" >"$ENGINE_DIR/log" 2>&1 &
  export DOCKER_HOST="unix://$ENGINE_DIR/docker.sock"
  for _ in $(seq 100); do
    docker info >/dev/null 2>&1 && return
    sleep 0.2
  done
  tail -n 20 "$ENGINE_DIR/log" >&2
  echo "containers: the engine did not start" >&2
  exit 1
}

# import_torch NAME: an image of Debian 13 with its Python and PyTorch. The packages are unpacked once, into .tools.
import_torch() {
  local tar=.tools/debian-torch.tar
  if [ ! -e $tar ]; then
    deploy/setup.sh base
    echo "containers: unpacking Debian's PyTorch (1.1 GB, three minutes, once)"
    mkdir -p .tools
    mmdebstrap --quiet --format=tar --variant=minbase --mode=root --include=python3,python3-torch,python3-numpy --aptopt='APT::Install-Recommends "false"' \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' trixie $tar.new
    mv $tar.new $tar
  fi
  docker import --change 'ENV USE_LIBUV=0' $tar "$1" >/dev/null # Debian builds torch without libuv
}

stop_engine() {
  [ -n "${ENGINE_DIR:-}" ] || return 0
  kill "$(cat "$ENGINE_DIR/pid")" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$ENGINE_DIR"
}
