#!/bin/sh
# .ci/venv.sh PYTHON VENV WHAT [demo]: make or repair the virtual environment VENV and install into
# it what .ci/requirements/WHAT.txt names, by version and SHA-256; `install` also installs fleet.
# What is missing on this computer is listed before the first download; `demo`: also for the demo.
#
# VENV/.unfinished is there while an environment is changed. One that is found at the start was left
# by a run that was interrupted: the environment is made again.
set -eu
python=$1 venv=$2 what=$3 goal=${4:-}
cd "$(dirname "$0")/.."
bin=$venv/bin mark=$venv/.unfinished locked=.ci/requirements
working() { sh .ci/working.sh "$@"; }
quiet="-q --disable-pip-version-check"
# shellcheck disable=SC2086 # a list of words
install() { working "$1" "$bin/python" -m pip install $quiet -v --require-hashes -r "$locked/$2.txt"; }
has_pip() { "$bin/python" -m pip --version >/dev/null 2>&1; }

command -v "$python" >/dev/null 2>&1 || {
  echo "error: there is no $python; fleet needs Python 3.11 or newer with its module venv" >&2
  echo "  try: apt-get install python3 python3-venv (as root)" >&2
  exit 1
}
"$python" -I fleet/lab/host.py $goal

mkdir -p "$(dirname "$venv")"
# A run that was killed may have left a pip that still writes.
if command -v flock >/dev/null 2>&1; then exec 9>"$venv.lock"; flock 9; fi
if [ -e "$mark" ]; then
  echo "repairing $venv: an earlier run was interrupted" >&2
  rm -rf "$venv"
elif [ -e "$bin/python" ] && ! has_pip; then
  # uv makes environments without pip.
  grep -qs '^uv' "$venv/pyvenv.cfg" && "$bin/python" -m ensurepip >/dev/null 2>&1 || {
    echo "repairing $venv: it has no pip" >&2
    rm -rf "$venv"
  }
fi
whole=no
[ -e "$bin/python" ] || whole=yes
mkdir -p "$venv"
: >"$mark"
[ "$whole" = no ] || working "making $venv with $("$python" -V)" "$python" -m venv "$venv"
if [ "$what" = install ] || [ "$whole" = yes ]; then
  install "installing into $venv: downloads 45 MB of packages" install
  # shellcheck disable=SC2086 # a list of words
  working "installing fleet itself" "$bin/python" -m pip install $quiet --no-deps --no-build-isolation -e .
  touch "$venv/.installed"
fi
if [ "$what" = dev ]; then
  install "installing what the tests need" dev
  touch "$venv/.installed-dev"
fi
rm -f "$mark"
