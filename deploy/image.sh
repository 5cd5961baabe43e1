#!/usr/bin/env bash
# Builds a target of deploy/Dockerfile into an archive for `docker load` and prints the id of the image, which is the digest of
# its configuration. The same commit and Go release give the same id, wherever and whenever it is built: files get the modes
# that they need and the time of the commit (or SOURCE_DATE_EPOCH). Needs make build, and make libregroup for regroup-torch.
#   deploy/image.sh regroup|agent|regroup-torch FILE [BASE]
set -euo pipefail
target=${1:?usage: deploy/image.sh TARGET FILE [BASE]} file=$(realpath "${2:?the archive}") base=${3:-scratch}
cd "$(dirname "$0")/.."
deploy/setup.sh image >&2 # the id is all that the output has
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
files=(bin/regroup)
case $target in
agent) files+=(bin/mnist bin/counter) ;;
regroup-torch)
  mapfile -t sources < <(git ls-files python/regroup)
  files+=(bin/libregroup.so "${sources[@]}")
  ;;
esac
for f in "${files[@]}"; do
  mode=0644
  [ ! -x "$f" ] || mode=0755
  install -D -m "$mode" "$f" "$dir/context/$f"
done
chmod -R go+rX "$dir/context" # folders have the modes that the umask leaves
install -d -m 0700 "$dir/context/bin/state"
cp deploy/Dockerfile "$dir/context"

builder() { buildah --root "$dir/root" --runroot "$dir/run" --storage-driver vfs "$@"; }
builder build --quiet --format docker --isolation chroot --timestamp "$epoch" --build-arg "BASE=$base" --target "$target" \
  --file "$dir/context/Dockerfile" --tag "$target" "$dir/context" >/dev/null
builder push --quiet "$target" "docker-archive:$dir/image.tar:$target:latest"

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
