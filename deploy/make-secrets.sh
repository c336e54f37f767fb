#!/bin/sh
# Makes what compose.yaml and the overlay "local" mount: fresh random keys in a folder that git ignores. What is there is kept.
#   deploy/make-secrets.sh [FOLDER]        needs openssl, and `errata` on the PATH (or ERRATA=.venv/bin/errata)
# For trying out: a real deployment gets its secrets from its own store.
set -eu
umask 022
folder="${1:-$(dirname "$0")/secrets}"
errata="${ERRATA:-errata}"
case "$errata" in
  */*) errata="$(cd "$(dirname "$errata")" && pwd)/$(basename "$errata")" ;;
esac
mkdir -p "$folder"
# The files are mounted into containers whose users are others; the folder keeps everybody else out.
chmod 700 "$folder"
cd "$folder"

put() { # FILE, content on standard input
  if [ -s "$1" ]; then cat >/dev/null; else cat >"$1"; fi
}

[ -s signing-key.pem ] || openssl genpkey -algorithm ed25519 -out signing-key.pem
[ -s trusted.pem ] || openssl pkey -in signing-key.pem -pubout -out trusted.pem

openssl rand -hex 24 | put postgres-password
printf 'postgresql://errata:%s@postgres:5432/errata\n' "$(cat postgres-password)" | put database-url
openssl rand -hex 24 | put qdrant-api-key
printf 'service:\n  api_key: %s\n' "$(cat qdrant-api-key)" | put qdrant-local.yaml
openssl rand -hex 24 | put redis-password
printf 'requirepass %s\nsave ""\nappendonly no\nmaxmemory 64mb\nmaxmemory-policy allkeys-lru\n' "$(cat redis-password)" | put redis.conf
printf 'redis://:%s@redis:6379/0\n' "$(cat redis-password)" | put redis-url

# The keys' hashes are in api-keys.json; the keys themselves, which callers send, are in the two other files.
if [ ! -s api-keys.json ]; then
  "$errata" keys create --file api-keys.json --principal trial --role ask --role ingest >trial.key
  "$errata" keys create --file api-keys.json --principal operator --role ask --role ingest --role admin >operator.key
fi
chmod 444 ./*.pem ./*.json ./*.yaml ./*.conf database-url postgres-password qdrant-api-key redis-password redis-url
chmod 400 ./*.key
echo "The secrets are in $folder; the key to call with is in trial.key."
