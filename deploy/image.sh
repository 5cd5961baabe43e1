#!/usr/bin/env bash
# Builds a target of deploy/Dockerfile into an archive for `docker load` and prints the id of the image, which is the digest of
# its configuration. The same commit and Go release give the same id, wherever and whenever it is built: files get the modes
# that they need and the time of the commit (or SOURCE_DATE_EPOCH). Needs make build, and make libregroup for regroup-torch.
# With ARCH=amd64 or arm64 the programs are those of bin/linux-$ARCH. VERSION is that of the programs, if they cannot run here.
#   deploy/image.sh regroup|agent|regroup-torch FILE [BASE]
set -euo pipefail
target=${1:?usage: deploy/image.sh TARGET FILE [BASE]} file=$(realpath "${2:?the archive}") base=${3:-scratch}
cd "$(dirname "$0")/.."
deploy/setup.sh image >&2 # the id is all that the output has
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
programs=bin${ARCH:+/linux-$ARCH}
version=${VERSION:-$("$programs/regroup" version -o json | jq -r .version)}
title=$target
[ "$target" != agent ] || title=regroup-agent
labels=()
for label in "title=$title" "version=$version" "revision=$(git rev-parse HEAD)" "created=$(date -u -d "@$epoch" +%FT%TZ)" \
  licenses=Apache-2.0 source=https://github.com/regroup-io/regroup; do
  labels+=(--label "org.opencontainers.image.$label")
done

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
files=(bin/regroup)
case $target in
regroup) files+=(bin/mnist) ;;
agent) files+=(bin/mnist bin/counter) ;;
regroup-torch)
  mapfile -t sources < <(git ls-files python/regroup)
  files+=(bin/libregroup.so "${sources[@]}")
  ;;
esac
for f in "${files[@]}"; do
  from=${f/#bin/$programs} mode=0644
  [ ! -x "$from" ] || mode=0755
  install -D -m "$mode" "$from" "$dir/context/$f"
done
chmod -R go+rX "$dir/context" # folders have the modes that the umask leaves
install -d -m 0700 "$dir/context/bin/state"
cp deploy/Dockerfile "$dir/context"

builder() { buildah --root "$dir/root" --runroot "$dir/run" --storage-driver vfs "$@"; }
builder build --quiet --format docker --isolation chroot --timestamp "$epoch" --identity-label=false "${labels[@]}" ${ARCH:+--platform "linux/$ARCH"} --build-arg "BASE=$base" --target "$target" \
  --file "$dir/context/Dockerfile" --tag "$title" "$dir/context" >/dev/null
builder push --quiet "$title" "docker-archive:$dir/image.tar:$title:latest"

# The configuration names the container in which the image was built, and images between, at random: it is written again without
# that, and what refers to it too.
mkdir "$dir/image"
tar -C "$dir/image" -xf "$dir/image.tar"
cd "$dir/image"
config=$(jq -r '.[0].Config' manifest.json)
jq -c 'del(.container, .parent, .history[].comment) | .config.Hostname = "" | if .container_config then .container_config.Hostname = "" else . end' "$config" >../config
id=$(sha256sum ../config | cut -d' ' -f1)
mapfile -t layers < <(jq -r '.[0].Layers[]' manifest.json)
rm -f "$config"
mv ../config "$id.json"
jq -c --arg config "$id.json" '.[0].Config = $config' manifest.json >../manifest
mv -f ../manifest manifest.json
rm -f "$file"
tar --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=0644 --mtime="@$epoch" -cf "$file" manifest.json "$id.json" "${layers[@]}"
echo "sha256:$id"
