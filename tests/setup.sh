#!/bin/sh
# What the tests use beyond Python. As root on Debian: installed; otherwise named in one line.
# $1 `gate`: also what the gate uses; `slow`: what the slow tier does.
set -eu
PATH=$PATH:/usr/sbin:/sbin
need=
for pair in sshd:openssh-server ssh:openssh-client ip:iproute2 \
            nsenter:util-linux busybox:busybox mksh:mksh zsh:zsh fish:fish \
            gcc:gcc chromium:chromium udevadm:udev; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || need="$need ${pair##*:}"
done
ldconfig -p 2>/dev/null | grep -q libatomic.so.1 || need="$need libatomic1"
if [ "${1:-}" = slow ]; then
  command -v qemu-system-x86_64 >/dev/null 2>&1 || need="$need qemu-system-x86 ipxe-qemu seabios"
  command -v mmdebstrap >/dev/null 2>&1 || need="$need mmdebstrap"
fi
if [ -n "${1:-}" ]; then
  command -v qemu-aarch64-static >/dev/null 2>&1 || need="$need qemu-user-static"
  command -v linux.uml >/dev/null 2>&1 || need="$need user-mode-linux"
fi
command -v gcc >/dev/null 2>&1 && [ -e /usr/include/stdio.h ] || need="$need libc6-dev"
[ -n "$need" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of words
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need >/dev/null
else
  echo "some tests will be skipped or fail without:$need (sudo apt-get install$need)" >&2
fi
