#!/bin/bash
# shellcheck shell=bash
# .ci/kill-demo.sh [TIMES]: `make demo` is killed at random moments, each time with everything that
# it started, and the last one must end with the table. By hand, in a fresh clone; it makes .venv,
# fleet-demo and, below this folder, a cache and a home of its own, so that all is downloaded.
# MOST: seconds after which a turn is killed at the latest.
set -eu
cd "$(dirname "$0")/.."
times=${1:-12}
export FLEET_CACHE=$PWD/.kill/cache FLEET_HOME=$PWD/.kill/home
mkdir -p .kill
for n in $(seq "$times"); do
  setsid make demo >".kill/$n.log" 2>&1 &
  leader=$!
  seconds=$((RANDOM % ${MOST:-60})).$((RANDOM % 10))
  sleep "$seconds"
  if ! kill -0 "$leader" 2>/dev/null; then
    wait "$leader" && code=0 || code=$?
    echo "turn $n: ended by itself before $seconds s, exit code $code: $(tail -n 1 ".kill/$n.log")"
    [ "$code" = 0 ] || { tail -n 5 ".kill/$n.log"; exit 1; }
    continue
  fi
  kill -KILL -- "-$leader"
  wait "$leader" 2>/dev/null || true
  echo "turn $n: killed after $seconds s: $(grep -v '^  ' ".kill/$n.log" | tail -n 1 | cut -c 1-70)"
done
code=0
make demo >.kill/last.log 2>&1 || code=$?
grep -A 5 'gen tok/s' .kill/last.log || { tail -n 5 .kill/last.log; code=1; }
.venv/bin/fleet lab down --dir fleet-demo/.lab
exit "$code"
