"""Checks of the chip and its DSP: identity, state, firmware, daemon, other users, heat."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.checks.fastrpc import needs_dsp
from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Seen
from fleet.engine.run.measuring.heat import hottest
from fleet.facts.soc import no_htp
from fleet.model.diagnosis import Check
from fleet.model.facts import SHELL_FOLDERS

_UNITS = "systemctl is-active cdsprpcd"
_STATES = "cat /sys/class/remoteproc/*/name /sys/class/remoteproc/*/state"
_SOC = Maker("soc", "os")
_DAEMON = Maker("cdsprpcd", "daemon")
_DSP = Maker("dsp", "dsp")
_SHELLS = Maker("shells", "dsp")
_FIRMWARE = Maker("firmware", "dsp")
_BUSY = Maker("busy", "dsp")


def soc(sample: Seen) -> Iterator[Check]:
    """The chip is one that the tables know, and QNN has a backend for it."""
    chip = sample.facts.soc
    command = "cat /sys/devices/soc0/soc_id /sys/firmware/devicetree/base/model"
    output = f"soc_id {chip.kernel_soc_id}, {chip.model or 'no device tree'}"
    if not needs_dsp(sample):
        yield _SOC.ok("this device has no Snapdragon chip; it uses the HTP emulator")
    elif chip.conflict:
        yield _SOC.warn(chip.conflict, {"soc": "conflict"}, command, output)
    elif chip.chip is None:
        text = "fleet does not know this chip, so its Hexagon arch and soc_model are unknown"
        yield _SOC.bad(text, {"soc": "unknown"}, command, output)
    elif chip.htp is False:
        yield _SOC.bad(no_htp(chip), {"soc": "known", "soc.arch": "too-old"}, command, output)
    else:
        text = f"{chip.chip}, {chip.hexagon_arch or 'arch unknown'}"
        yield _SOC.ok(text, {"soc": "known", "soc.arch": "ok"}, command, output)


def daemon(sample: Seen) -> Iterator[Check]:
    """cdsprpcd runs; NPU sessions work without it."""
    if not needs_dsp(sample) or sample.facts.android is not None:
        return
    states = {row[0]: row[-1].strip() for row in sample.pairs("unit")}
    state = states.get("cdsprpcd", "")
    if "ActiveState=active" in state:
        yield _DAEMON.ok("active", {"daemon.cdsprpcd": "active"}, _UNITS, state)
    elif "LoadState=loaded" in state:
        text = (
            "the service cdsprpcd is not running, so there are no DSP logs; NPU sessions work "
            "without the service"
        )
        yield _DAEMON.warn(text, {"daemon.cdsprpcd": "inactive"}, _UNITS, state)
    else:
        text = "the service cdsprpcd is not installed; NPU sessions work without this service"
        yield _DAEMON.ok(text, {"daemon.cdsprpcd": "absent"}, _UNITS, state)


def dsp(sample: Seen) -> Iterator[Check]:
    """The compute DSP runs."""
    if not needs_dsp(sample):
        return
    states = [(name, state) for name, state in sample.facts.remoteproc if name.startswith("cdsp")]
    output = ", ".join(f"{name} {state or 'unknown'}" for name, state in sample.facts.remoteproc)
    bad = [f"{name} is {state}" for name, state in states if state and state != "running"]
    if not states:
        text = "the kernel shows no compute DSP in /sys/class/remoteproc"
        yield _DSP.unknown(text, {"dsp.state": "absent"}, _STATES)
    elif bad and len(bad) == len(states):
        word = "crashed" if any("crashed" in state for state in bad) else "offline"
        yield _DSP.bad(", ".join(bad), {"dsp.state": word}, _STATES, output)
    elif bad:
        yield _DSP.warn(", ".join(bad), {"dsp.state": "running"}, _STATES, output)
    else:
        yield _DSP.ok(output, {"dsp.state": "running"}, _STATES, output)


def shells(sample: Seen) -> Iterator[Check]:
    """A shell for the compute DSP lies where libcdsprpc looks: each session begins with one."""
    folders = sample.facts.dsp_shells
    if folders is None or not needs_dsp(sample) or sample.facts.android is not None:
        return
    command = f"ls {' '.join(SHELL_FOLDERS)}"
    if folders:
        yield _SHELLS.ok(", ".join(folders), {"dsp.shell": "present"}, command, " ".join(folders))
    else:
        text = (
            "the DSP shell file (fastrpc_shell_3 or fastrpc_shell_unsigned_3) is missing in "
            f"{', '.join(SHELL_FOLDERS)}"
        )
        yield _SHELLS.warn(text, {"dsp.shell": "absent"}, command, "none")


def firmware(sample: Seen) -> Iterator[Check]:
    """The firmware of a compute DSP that does not run is there."""
    stopped = {name for name, state in sample.facts.remoteproc if state != "running"}
    for name, file, there in (row for row in sample.pairs("firmware") if len(row) == 3):
        if name not in stopped or not name.startswith("cdsp"):
            continue
        command = f"ls -l /lib/firmware/{file}*"
        if there == "yes":
            yield _FIRMWARE.ok(
                f"the firmware of {name} is installed", {"dsp.firmware": "present"}, command
            )
        else:
            text = f"the firmware file {file} of {name} is missing"
            yield _FIRMWARE.bad(text, {"dsp.firmware": "missing"}, command, "no such file")


def busy(sample: Seen) -> Iterator[Check]:
    """No other program of the kind uses the DSP."""
    rows = sample.block("busy")
    if "busy" not in sample.lines:
        text = (
            "fleet could not see whether another program uses the NPU: the device has no usable ps"
        )
        yield _BUSY.unknown(text, {}, "ps -eo pid,user,etime,args")
        return
    if not rows:
        yield _BUSY.ok("no other program uses the NPU", {"device.busy": "no"})
        return
    text, output = f"{len(rows)} other program(s) may be using the DSP", "\n".join(rows)
    yield _BUSY.warn(text, {"device.busy": "yes"}, "ps -eo pid,user,etime,args", output)


# The first passive trip point of the CPUs of SC7280 (QCS6490): torvalds/linux
# arch/arm64/boot/dts/qcom/sc7280.dtsi, cpu0_alert0. Other chips begin higher.
HOT_CELSIUS = 90.0
_HEAT = Maker("heat", "session")
_ZONES = "for z in /sys/class/thermal/thermal_zone*; do echo $(cat $z/type $z/temp); done"


def heat(sample: Seen) -> Iterator[Check]:
    """The compute zones are below the temperature at which clocks are lowered."""
    zones = {zone.type or zone.name: zone.celsius for zone in sample.facts.thermal}
    hot_zone = hottest({name: celsius for name, celsius in zones.items() if celsius is not None})
    if hot_zone is None:
        yield _HEAT.unknown("fleet cannot read the temperature of the device")
        return
    output = f"{hot_zone.zone} {hot_zone.celsius:.0f} °C"
    if hot_zone.celsius < HOT_CELSIUS:
        yield _HEAT.ok(output, {"device.heat": "ok"}, _ZONES, output)
        return
    text = f"{output}: from {HOT_CELSIUS:.0f} °C the chip lowers its clocks{_limited(sample)}"
    yield _HEAT.warn(text, {"device.heat": "hot"}, _ZONES, output)


def _limited(sample: Seen) -> str:
    """Return a text about the most limited CPU clock, as a share of its maximum; "" for none."""
    shares = {
        name: int(limit) / int(most)
        for name, limit, most in (row for row in sample.pairs("clock") if len(row) == 3)
        if limit.isdecimal() and most.isdecimal() and int(most)
    }
    name = min(shares, key=lambda policy: shares[policy], default="")
    return f"; {name} runs at {shares[name]:.0%}" if name and shares[name] < 1 else ""
