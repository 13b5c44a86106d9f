#!/bin/sh
# What `make test` needs on a bare Debian; the tests of the gate as well. Runs as root or by sudo.
set -eu
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  ca-certificates git make python3 python3-venv
$sudo sh tests/setup.sh gate
make -s .venv/.installed-dev
echo "ready: make test"
