"""Faults of what runs on a board: a set-up by hand in ~/npu, releases of fleet, FastRPC's library.

`fleet lab stock` lays the set-up. Every fault moves, cuts or rewrites a file; what it was is
kept under /run/lab-kept.
"""

from __future__ import annotations

import base64

from fleet.lab.elf import fastrpc_library
from fleet.lab.faultbase import Fault
from fleet.lab.packages import LIB

_KEEP = 'keep() { mkdir -p "/run/lab-kept/$1" && cp -a "$2" "/run/lab-kept/$1/"; }; '
_BACK = (
    'back() { [ -d "/run/lab-kept/$1" ] || return 0; cp -a "/run/lab-kept/$1/." "$2" && '
    'rm -r "/run/lab-kept/$1"; }; '
)
_LAID = ('test -d "$2/npu/lib"', "nothing is in ~/npu: fleet lab stock")
_LIVE = ('test -L "$2"/fleet/current/*', "no release is on it: fleet deploy")
_OWN = 'chown -h "$1:" '
_CURRENT = 'for r in "$2"/fleet/current/*; do r=$(readlink -f "$r"); done; '
# The last blob of a .bin that the current release links to.
_BIN = _CURRENT + 'b=$(readlink -f "$(find "$r" -name "*.bin" | head -n 1)"); '


def _file(name: str, about: str, pattern: str, change: str) -> Fault:
    """A fault of one file of ~/npu: `$f` is the first that fits `pattern`."""
    find = f'f=$(find "$2/npu" -name "{pattern}" | grep -v Calculator | head -n 1); '
    make = f'{_KEEP}{find}[ -n "$f" ] && keep {name} "$f" && {change}'
    where = f'd=$(cat /run/lab-kept-{name}); back {name} "$d"; rm -f /run/lab-kept-{name}'
    return Fault(
        about,
        f'{find}dirname "$f" > /run/lab-kept-{name}; {make}',
        f"{_BACK}[ -e /run/lab-kept-{name} ] || exit 0; {where}",
        *_LAID,
    )


_OTHER_BUILD = (
    "LC_ALL=C sed -i 's/v2\\.[0-9][0-9]\\.\\([0-9]*\\.[0-9]\\{12\\}\\)/v2.40.\\1/g' \"$f\""
)
_OLD = base64.b64encode(fastrpc_library("libcdsprpc.so.1", old=True)).decode()
_LIBS = f"{LIB}/libcdsprpc.so*"


def _profile_line(name: str, about: str, line: str) -> Fault:
    return Fault(
        about,
        f"printf '%s\\n' '{line} # lab {name}' >> \"$2/.profile\" && {_OWN}\"$2/.profile\"",
        f"sed -i '/# lab {name}$/d' \"$2/.profile\"",
    )


HAND_FAULTS: dict[str, Fault] = {
    "stub-missing": _file(
        "stub-missing", "the stub is not in ~/npu", "libQnnHtpV*Stub.so", 'rm "$f"'
    ),
    "skel-missing": _file(
        "skel-missing", "the skel is not in ~/npu", "libQnnHtpV*Skel.so", 'rm "$f"'
    ),
    "stub-other-build": _file(
        "stub-other-build", "the stub in ~/npu is of QAIRT 2.40", "libQnnHtpV*Stub.so", _OTHER_BUILD
    ),
    "skel-other-build": _file(
        "skel-other-build", "the skel in ~/npu is of QAIRT 2.40", "libQnnHtpV*Skel.so", _OTHER_BUILD
    ),
    "skel-other-arch": _file(
        "skel-other-arch",
        "the skel in ~/npu holds code for Hexagon v75",
        "libQnnHtpV*Skel.so",
        'printf "\\165" | dd of="$f" bs=1 seek=36 conv=notrunc 2>/dev/null',
    ),
    "library-other-machine": _file(
        "library-other-machine",
        "a library of another machine stands in ~/npu",
        "libQnnSystem.so",
        f'cp {LIB}/libc.so.6 "$f"',
    ),
    "library-cut": _file(
        "library-cut", "libQnnHtp.so in ~/npu is cut off", "libQnnHtp.so", 'truncate -s 500000 "$f"'
    ),
    "context-empty": _file(
        "context-empty", "a context binary in ~/npu is empty", "*.bin", ': > "$f"'
    ),
    "context-cut": _file(
        "context-cut",
        "a context binary in ~/npu is cut off",
        "*.bin",
        'truncate -s $(($(wc -c < "$f") / 2)) "$f"',
    ),
    "context-zeroed": _file(
        "context-zeroed",
        "a context binary in ~/npu holds zeros",
        "*.bin",
        'n=$(wc -c < "$f"); : > "$f"; truncate -s "$n" "$f"',
    ),
    "config-syntax": _file(
        "config-syntax",
        "the Genie configuration in ~/npu is no JSON",
        "genie_config.json",
        "sed -i '$d' \"$f\"",
    ),
    "config-schema": _file(
        "config-schema",
        "the dialog of the Genie configuration in ~/npu has no type",
        "genie_config.json",
        'sed -i \'s/"type" *: *"basic" *,//\' "$f"',
    ),
    "tokenizer-missing": _file(
        "tokenizer-missing", "the tokenizer is not in ~/npu", "tokenizer.json", 'rm "$f"'
    ),
    "separator": _profile_line(
        "separator",
        "ADSP_LIBRARY_PATH is joined by colons in ~/.profile",
        "export ADSP_LIBRARY_PATH=/opt/qairt/dsp:/usr/lib/dsp",
    ),
    "dsp-path": _profile_line(
        "dsp-path",
        "DSP_LIBRARY_PATH is set in ~/.profile",
        "export DSP_LIBRARY_PATH=/usr/lib/dsp/cdsp",
    ),
    "old-skel-in-system": Fault(
        "a skel of QAIRT 2.40 is in /usr/lib/rfsa/adsp",
        'f=$(find "$2/npu" -name "libQnnHtpV*Skel.so" | head -n 1); [ -n "$f" ] && '
        'mkdir -p /usr/lib/rfsa/adsp && cp "$f" /usr/lib/rfsa/adsp/ && '
        f'f=/usr/lib/rfsa/adsp/$(basename "$f") && {_OTHER_BUILD}',
        "rm -rf /usr/lib/rfsa",
        *_LAID,
    ),
    "no-libcdsprpc": Fault(
        "libcdsprpc is not installed",
        f"mkdir -p /run/lab-cdsprpc && mv {_LIBS} /run/lab-cdsprpc/ && ldconfig",
        f"mv /run/lab-cdsprpc/* {LIB}/ && rmdir /run/lab-cdsprpc && ldconfig",
        f"ls {_LIBS}",
        "it has none",
    ),
    "old-libcdsprpc": Fault(
        "libcdsprpc is older than dspqueue",
        f"mkdir -p /run/lab-cdsprpc && mv {_LIBS} /run/lab-cdsprpc/ && for n in '' .1; do "
        f"echo {_OLD} | base64 -d > {LIB}/libcdsprpc.so$n; done && ldconfig",
        f"rm {_LIBS}; mv /run/lab-cdsprpc/* {LIB}/ && rmdir /run/lab-cdsprpc && ldconfig",
        f"ls {_LIBS}",
        "it has none",
    ),
    "no-firmware": Fault(
        "the firmware of the compute DSP is gone, so it does not run",
        "mv /usr/lib/firmware/qcom/lab /usr/lib/firmware/qcom/lab.gone; "
        'for d in /sys/class/remoteproc/*; do case $(cat "$d/name") in '
        'cdsp*) echo offline > "$d/state" ;; esac; done',
        "mv /usr/lib/firmware/qcom/lab.gone /usr/lib/firmware/qcom/lab; "
        'for d in /sys/class/remoteproc/*; do case $(cat "$d/name") in '
        'cdsp*) echo running > "$d/state" ;; esac; done',
    ),
    "noexec": Fault(
        "the deploy folder is mounted noexec",
        'uid=$(id -u "$1"); install -d -o "$1" "$2/fleet" && mount -t tmpfs -o '
        '"size=40m,uid=$uid,noexec" tmpfs "$2/fleet"',
        'umount "$2/fleet"',
    ),
    "blob-cut": Fault(
        "a context binary of the current release is cut off",
        f'{_KEEP}{_BIN}keep blob "$b" && chmod u+w "$b" && truncate -s 1000 "$b"',
        f'{_BACK}{_BIN}back blob "$(dirname "$b")"',
        *_LIVE,
    ),
    "blob-changed": Fault(
        "64 bytes of a context binary of the current release are others",
        f'{_KEEP}{_BIN}keep blob "$b" && chmod u+w "$b" && head -c 64 /dev/urandom | '
        'dd of="$b" bs=1 seek=42000 conv=notrunc 2>/dev/null',
        f'{_BACK}{_BIN}back blob "$(dirname "$b")"',
        *_LIVE,
    ),
    "link-gone": Fault(
        "a library is missing in the current release",
        f'{_CURRENT}readlink "$r/lib/libQnnHtp.so" > /run/lab-link && rm "$r/lib/libQnnHtp.so"',
        f'{_CURRENT}ln -s "$(cat /run/lab-link)" "$r/lib/libQnnHtp.so" && '
        f'{_OWN}"$r/lib/libQnnHtp.so"',
        *_LIVE,
    ),
    "unsealed": Fault(
        "the current release was never sealed, as after a power cut at the wrong time",
        f'{_CURRENT}mv "$r/.installed" "$r/.installed.gone"',
        f'{_CURRENT}mv "$r/.installed.gone" "$r/.installed"',
        *_LIVE,
    ),
}
