#!/usr/bin/env bash
# Installs what a fresh Debian-like machine misses. Says what it does; does nothing when all is there.
#   deploy/setup.sh go      what building and testing needs
#   deploy/setup.sh hatch   what builds a Python wheel, and installs it into an environment
#   deploy/setup.sh net     what the tests of the network need: namespaces and packet filters
#   deploy/setup.sh mpi     Open MPI, which the engine is measured beside
#   deploy/setup.sh check   what checks scripts and units of systemd
#   deploy/setup.sh slurm   a Slurm controller and daemons, for the test of the batch script
#   deploy/setup.sh browser a browser without a screen, and what drives it, for the dashboard
#   deploy/setup.sh jaeger  Jaeger, built from its Go module, for the test of traces
#   deploy/setup.sh promtool Prometheus' own checker of rules and metrics, without Prometheus
#   deploy/setup.sh node    a NATS client that is not ours, for the tests
#   deploy/setup.sh image   what builds images whose digest can be repeated
#   deploy/setup.sh packages  what reads packages of Red Hat, for the test of a release
#   deploy/setup.sh containers  what the tests in containers ask the gateway with
#   deploy/setup.sh base    what makes an image of Debian's packages, for the test of PyTorch in containers
#   deploy/setup.sh kubernetes  a control plane of Kubernetes and kwok, into .tools, for the test of the chart
#   deploy/setup.sh queues  the same with the controllers of Kueue, JobSet and Kubeflow Trainer, for the test of deploy/queues
#   deploy/setup.sh kernel  an emulator, and a kernel for it in .tools, for the tests of control groups of version 2
set -euo pipefail

fail() { echo "setup: $*" >&2; exit 1; }

packages() { # install the named Debian packages
  [ "$(id -u)" = 0 ] || fail "missing: $*. Run as root, or: sudo apt-get install $*"
  command -v apt-get >/dev/null || fail "missing: $*, and there is no apt-get here to install them"
  echo "setup: installing $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

unpack() { # take a FILE out of a Debian PACKAGE, which is not installed, and put it at a PATH
  command -v apt-get >/dev/null || fail "missing: $1, and there is no apt-get here to fetch it"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  echo "setup: fetching $1"
  [ "$(id -u)" != 0 ] || apt-get update -qq
  apt-get download -qq -o APT::Sandbox::User=root "$1"
  dpkg -x ./*.deb package
  mkdir -p "$(dirname "$3")"
  mv package/$2 "$3"
}

case "${1:-}" in
go)
  command -v go >/dev/null || fail "Go 1.26 or newer is needed: https://go.dev/doc/install"
  command -v gcc >/dev/null || packages gcc libc6-dev # the race detector links with it
  ;;
hatch)
  /usr/bin/python3 -c 'import hatchling, ensurepip' 2>/dev/null || packages python3-hatchling python3-venv
  ;;
mpi)
  command -v mpicc >/dev/null && command -v mpirun >/dev/null || packages openmpi-bin libopenmpi-dev
  ;;
check)
  command -v shellcheck >/dev/null && command -v systemd-analyze >/dev/null || packages shellcheck systemd
  ;;
packages)
  command -v rpm >/dev/null && command -v dpkg-deb >/dev/null || packages rpm dpkg
  ;;
slurm)
  command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v srun >/dev/null && command -v munged >/dev/null ||
    packages slurmctld slurmd slurm-client munge
  ;;
net)
  missing=()
  command -v ip >/dev/null || missing+=(iproute2)
  command -v iptables-restore >/dev/null || missing+=(iptables)
  [ ${#missing[@]} = 0 ] || packages "${missing[@]}"
  ;;
browser)
  command -v chromium >/dev/null || packages chromium fonts-dejavu-core
  command -v node >/dev/null && command -v npm >/dev/null || packages nodejs npm
  cd "$(dirname "$0")/../e2e/dashboard"
  [ -d node_modules/axe-core ] && [ -d node_modules/playwright-core ] || npm ci --silent --no-fund --no-audit
  ;;
node)
  command -v node >/dev/null && command -v npm >/dev/null || packages nodejs npm
  cd "$(dirname "$0")/../e2e/local/testdata/foreign"
  [ -d node_modules/cloudevents ] || npm ci --silent --no-fund --no-audit
  ;;
promtool)
  command -v curl >/dev/null || packages curl ca-certificates # asks a gateway what it tells Prometheus
  to=$(cd "$(dirname "$0")/.." && pwd)/.tools/promtool
  [ ! -x "$to" ] || exit 0
  unpack prometheus usr/bin/promtool "$to" # installed, it would start a server
  ;;
jaeger)
  version=v1.76.0 sum=h1:sWCOOF1dr+NL0PLil7mFo3BqqQL8k4WiM7aguFbc14g=
  to=$(cd "$(dirname "$0")/.." && pwd)/.tools/jaeger-$version
  [ ! -x "$to/jaeger" ] || exit 0
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  # Its go.mod replaces a module, which go install refuses. In a copy of the module its own go.sum vouches for all it is built of.
  go mod download -json "github.com/jaegertracing/jaeger@$version" >module.json
  grep -qF "\"Sum\": \"$sum\"" module.json || fail "Jaeger $version is not what it was: $(grep Sum module.json)"
  cp -r --no-preserve=mode "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' module.json)" jaeger
  echo "setup: building Jaeger $version (a quarter of an hour on two cores, once)"
  cd jaeger
  CGO_ENABLED=0 GOFLAGS='' go build -trimpath -ldflags '-s -w' -o "$to/jaeger" ./cmd/jaeger
  ;;
containers)
  command -v curl >/dev/null && command -v jq >/dev/null || packages curl ca-certificates jq
  ;;
base)
  command -v mmdebstrap >/dev/null || packages mmdebstrap
  ;;
image)
  command -v buildah >/dev/null && command -v jq >/dev/null || packages buildah jq
  ;;
kernel)
  [ "$(uname -m)" = x86_64 ] || fail "the kernel to emulate is that of x86_64, and this machine is $(uname -m)"
  command -v qemu-system-x86_64 >/dev/null && command -v cpio >/dev/null || packages qemu-system-x86 cpio
  to=$(cd "$(dirname "$0")/.." && pwd)/.tools/linux
  [ ! -f "$to/vmlinuz" ] || exit 0
  [ "$(id -u)" != 0 ] || apt-get update -qq
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)$/\1/p')
  [ -n "$package" ] || fail "this distribution has no package linux-image-cloud-amd64"
  unpack "$package" 'boot/vmlinuz-*' "$to/vmlinuz" # installed, this machine would boot it
  ;;
kubernetes)
  command -v openssl >/dev/null && command -v ip >/dev/null || packages openssl iproute2
  cd "$(dirname "$0")/../e2e/kubernetes"
  tools=../../.tools/kubernetes
  cmp -s go.sum $tools/built-of && exit 0 # what go.mod pins is there
  version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
  echo "setup: building Kubernetes $version (a quarter of an hour on two cores, once)"
  IFS=. read -r major minor _ <<<"${version#v}"
  set=k8s.io/component-base/version
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $set.gitVersion=$version -X $set.gitMajor=$major -X $set.gitMinor=$minor" -o $tools/ tool
  mv $tools/server $tools/etcd # etcd's main package is named so
  cp go.sum $tools/built-of
  ;;
queues)
  "$0" kubernetes
  cd "$(dirname "$0")/../e2e/kubernetes"
  tools=$(cd ../../.tools/kubernetes && pwd)
  cmp -s testdata/controllers.txt "$tools/controllers-of" && exit 0
  echo "setup: building controllers of queues (ten minutes on two cores, once)"
  grep -v '^#' testdata/controllers.txt | while read -r module version main definitions; do
    at=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    program=$([ "$main" = . ] && basename "$module" || basename "$main")
    (cd "$at" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$tools/$program" "./$main")
    for part in crd crds webhook; do
      [ ! -d "$at/$definitions/$part" ] || { rm -rf "$tools/$program.d/${part%s}" && mkdir -p "$tools/$program.d" && cp -r --no-preserve=mode "$at/$definitions/$part" "$tools/$program.d/${part%s}"; }
    done
  done
  cp testdata/controllers.txt "$tools/controllers-of"
  ;;
*) fail "usage: deploy/setup.sh go|hatch|mpi|check|slurm|net|node|browser|promtool|jaeger|image|containers|base|kernel|kubernetes|queues" ;;
esac
