#!/bin/sh
# Prints the secrets of the chart, of a directory of regroup auth: deploy/helm/secrets.sh AUTH | kubectl apply -f -
# Each pod gets the files that it needs, and nothing that signs anything.
set -eu
auth=${1:?usage: deploy/helm/secrets.sh AUTH}
[ -f "$auth/operator.jwt" ] || { echo "$auth is no directory of regroup auth: regroup auth init --auth $auth" >&2; exit 1; }

# secret NAME KEY=FILE ...
secret() {
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: { name: %s, labels: { app.kubernetes.io/name: regroup } }\ntype: Opaque\ndata:\n' "$1"
  shift
  for pair; do
    printf '  %s: %s\n' "${pair%%=*}" "$(base64 <"${pair#*=}" | tr -d '\n')"
  done
}

secret regroup-broker "operator.jwt=$auth/operator.jwt" "cluster.password=$auth/cluster.password" "ca.pem=$auth/tls/ca.pem" "server.pem=$auth/tls/server.pem" \
  "operator.creds=$auth/users/operator.creds" "system.creds=$auth/users/system.creds"
set --
for file in "$auth"/accounts/*.jwt; do
  set -- "$@" "$(basename "$file")=$file"
done
secret regroup-accounts "$@"
for file in "$auth"/users/*.creds; do
  name=$(basename "$file" .creds)
  [ "$name" = all ] || secret "regroup-user-$name" "user.creds=$file" "ca.pem=$auth/tls/ca.pem"
done
