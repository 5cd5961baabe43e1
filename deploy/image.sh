#!/usr/bin/env bash
# Builds a target of deploy/Dockerfile into an archive for `docker load` and prints the digest of its manifest. The same
# commit and Go release give the same digest, wherever and whenever it is built: files get the modes that they need and the
# time of the commit (or SOURCE_DATE_EPOCH). Needs make build, and make libregroup for regroup-torch.
#   deploy/image.sh regroup|agent|regroup-torch FILE [BASE]
set -euo pipefail
target=${1:?usage: deploy/image.sh TARGET FILE [BASE]} file=$(realpath "${2:?the archive}") base=${3:-scratch}
cd "$(dirname "$0")/.."
deploy/setup.sh image
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
cp deploy/Dockerfile "$dir/context"

builder() { buildah --root "$dir/root" --runroot "$dir/run" --storage-driver vfs "$@"; }
builder build --quiet --format docker --isolation chroot --timestamp "$epoch" --build-arg "BASE=$base" --target "$target" \
  --file "$dir/context/Dockerfile" --tag "$target" "$dir/context" >/dev/null
rm -f "$file"
builder push --quiet --digestfile "$dir/digest" "$target" "docker-archive:$file:$target:latest"
cat "$dir/digest"
echo
