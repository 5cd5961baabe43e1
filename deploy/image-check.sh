#!/usr/bin/env bash
# Builds the images of the last commit twice, from clones in folders of their own, with different permissions of new files
# and without the compiler's cache, and compares their ids.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
commit=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || echo "image-check: what is not committed is not checked" >&2

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
build() { # build FOLDER UMASK: prints an id for each target
  umask "$2"
  git clone -q . "$dir/$1"
  cd "$dir/$1"
  git checkout -q "$commit"
  GOCACHE=$dir/cache make -s build libregroup >&2
  for target in regroup agent regroup-torch; do # on nothing: a base is its maker's
    id=$(deploy/image.sh "$target" "$dir/image.tar")
    echo "$target $id"
  done
  rm -rf "$dir/cache"
}
first=$(build first 022)
second=$(build and/another/folder 077)
echo "$first"
[ "$first" = "$second" ] || { printf 'image-check: the second build differs:\n%s\n' "$second" >&2; exit 1; }
echo "image-check: the same ids twice, of $commit"
