"""Checks of the chip and its DSP: identity, state, firmware, daemon, other users."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.checks.fastrpc import needs_dsp
from fleet.doctor.seen import Seen
from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check

_OLDEST_ARCH = 68  # the oldest Hexagon that has an HTP backend
_UNITS = "systemctl is-active cdsprpcd"
_STATES = "cat /sys/class/remoteproc/*/name /sys/class/remoteproc/*/state"


def soc(seen: Seen) -> Iterator[Check]:
    """The chip is one that the tables know, and QNN has a backend for it."""
    chip = seen.facts.soc
    command = "cat /sys/devices/soc0/soc_id /sys/firmware/devicetree/base/model"
    said = f"soc_id {chip.kernel_soc_id}, {chip.model or 'no device tree'}"
    arch = (chip.hexagon_arch or "").lstrip("v")
    if not needs_dsp(seen):
        yield Check("soc", "os", OK, "no Snapdragon: the emulator stands for it")
    elif chip.conflict:
        yield Check("soc", "os", WARN, chip.conflict, {"soc": "conflict"}, command, said)
    elif chip.chip is None:
        yield Check(
            "soc",
            "os",
            BAD,
            "this chip is in no table: arch and soc_model are unknown",
            {"soc": "unknown"},
            command,
            said,
        )
    elif arch.isdigit() and int(arch) < _OLDEST_ARCH:
        yield Check(
            "soc",
            "os",
            BAD,
            f"{chip.chip} has Hexagon v{arch}; the HTP backend begins with v{_OLDEST_ARCH}",
            {"soc": "known", "soc.arch": "too-old"},
            command,
            said,
        )
    else:
        yield Check(
            "soc",
            "os",
            OK,
            f"{chip.chip}, {chip.hexagon_arch or 'arch unknown'}",
            {"soc": "known", "soc.arch": "ok"},
            command,
            said,
        )


def daemon(seen: Seen) -> Iterator[Check]:
    """cdsprpcd runs; NPU sessions work without it."""
    if not needs_dsp(seen) or seen.facts.android is not None:
        return
    said = dict((row[0], row[-1].strip()) for row in seen.pairs("unit"))  # noqa: C402
    state = said.get("cdsprpcd", "")
    if "ActiveState=active" in state:
        yield Check(
            "cdsprpcd", "daemon", OK, "active", {"daemon.cdsprpcd": "active"}, _UNITS, state
        )
    elif "LoadState=loaded" in state:
        text = "not active: no logs of the DSP; sessions work without it"
        yield Check(
            "cdsprpcd", "daemon", WARN, text, {"daemon.cdsprpcd": "inactive"}, _UNITS, state
        )
    else:
        yield Check(
            "cdsprpcd",
            "daemon",
            OK,
            "not installed; sessions work without it",
            {"daemon.cdsprpcd": "absent"},
            _UNITS,
            state,
        )


def dsp(seen: Seen) -> Iterator[Check]:
    """The compute DSP runs."""
    if not needs_dsp(seen):
        return
    states = [(name, state) for name, state in seen.facts.remoteproc if name.startswith("cdsp")]
    said = ", ".join(f"{name} {state or 'unknown'}" for name, state in seen.facts.remoteproc)
    bad = [f"{name} is {state}" for name, state in states if state and state != "running"]
    if not states:
        text = "no compute DSP in /sys/class/remoteproc"
        yield Check("dsp", "dsp", UNKNOWN, text, {"dsp.state": "absent"}, _STATES, said)
    elif bad and len(bad) == len(states):
        word = "crashed" if any("crashed" in one for one in bad) else "offline"
        yield Check("dsp", "dsp", BAD, ", ".join(bad), {"dsp.state": word}, _STATES, said)
    elif bad:
        yield Check("dsp", "dsp", WARN, ", ".join(bad), {"dsp.state": "running"}, _STATES, said)
    else:
        yield Check("dsp", "dsp", OK, said, {"dsp.state": "running"}, _STATES, said)


def firmware(seen: Seen) -> Iterator[Check]:
    """The firmware of a compute DSP that does not run is there."""
    stopped = {
        n for n, state in seen.facts.remoteproc if n.startswith("cdsp") and state != "running"
    }
    for name, file, there in (row for row in seen.pairs("firmware") if len(row) == 3):
        if name in stopped:
            status, word = (OK, "present") if there == "yes" else (BAD, "missing")
            text = f"firmware {file} of {name} is {'there' if there == 'yes' else 'missing'}"
            yield Check(
                "firmware",
                "dsp",
                status,
                text,
                {"dsp.firmware": word},
                f"ls -l /lib/firmware/{file}*",
                text,
            )


def busy(seen: Seen) -> Iterator[Check]:
    """No other program of the kind uses the DSP."""
    rows = seen.block("busy")
    if rows:
        yield Check(
            "busy",
            "dsp",
            WARN,
            f"{len(rows)} other program(s) may hold the DSP",
            {"device.busy": "yes"},
            "ps -eo pid,user,etime,args",
            "\n".join(rows),
        )
    else:
        yield Check("busy", "dsp", OK, "no other runner is at work", {"device.busy": "no"})
