#!/bin/sh
# The first pod founds the cluster; every other one joins it there. A pod that comes back knows the cluster from its volume.
set -eu
cd /qdrant
if [ "${QDRANT__CLUSTER__ENABLED:-false}" != true ]; then
  exec ./entrypoint.sh
fi
first="http://qdrant-0.qdrant-headless:${QDRANT__CLUSTER__P2P__PORT}"
self="http://${HOSTNAME}.qdrant-headless:${QDRANT__CLUSTER__P2P__PORT}"
if [ "$self" = "$first" ]; then
  exec ./entrypoint.sh --uri "$self"
fi
exec ./entrypoint.sh --bootstrap "$first" --uri "$self"
