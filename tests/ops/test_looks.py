"""Looks by the real scripts in several shells, and what is read from what they print."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.deadline import Deadline
from fleet.model.lease import Ticket
from fleet.ops import lease
from fleet.ops.looks import (
    LOOKS,
    MOST_SAMPLES,
    celsius,
    conditions_of,
    look_command,
    run_command,
    zones_of,
)
from fleet.transport.quote import render

from .board import Board
from .test_lease import DROPBEAR_BYTES

CPU = "devices/system/cpu/cpufreq/policy0"
SYS = {
    "class/thermal/thermal_zone0/type": "nspss-0",
    "class/thermal/thermal_zone0/temp": "41300",
    "class/thermal/thermal_zone1/type": "cpuss",
    "class/thermal/thermal_zone1/temp": "-274000",
    "class/thermal/thermal_zone2/type": "cpuss",
    "class/thermal/thermal_zone2/temp": "-1500",
    "class/thermal/thermal_zone10/type": "soc",
    "class/thermal/thermal_zone10/temp": "87",
    f"{CPU}/scaling_cur_freq": "940800",
    f"{CPU}/scaling_max_freq": "1804800",
    f"{CPU}/cpuinfo_max_freq": "2361600",
    f"{CPU}/scaling_governor": "ondemand",
    "class/devfreq/3d00000.gpu/cur_freq": "305000000",
    "class/devfreq/3d00000.gpu/max_freq": "800000000",
    "class/devfreq/3d00000.gpu/governor": "msm-adreno-tz",
    "class/power_supply/battery/status": "Not charging",
    "class/power_supply/battery/online": "1",
    "class/power_supply/usb/online": "0",
}
SHELLS = ("dash", "bash", "busybox", "mksh")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A /sys with blanks in its path, and a /proc of its own."""
    made = tmp_path / "sys root"
    for path, text in SYS.items():
        target = made / "sys" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")
    (made / "sys" / CPU / "scaling_max_freq").write_text("1804800")  # no newline at the end
    boot = made / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("09e6fc68-5acc-46ee-a216-11b37491dcf7\n")
    return made


@pytest.fixture(params=SHELLS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


def test_one_look(board: Board, root: Path) -> None:
    done = board.argv(look_command().argv, env={"FLEET_SYSROOT": str(root)})
    assert (done.returncode, done.stderr) == (0, b"")
    text = "motd\n" + done.stdout.decode()
    assert zones_of(text) == {"nspss-0": 41.3, "cpuss#1": None, "soc": None, "cpuss#2": -1.5}
    seen = conditions_of(text)
    assert seen.before is not None
    assert seen.before.zones == {"nspss-0": 41.3, "cpuss#2": -1.5}
    assert seen.before.clocks == {"cpu:policy0": 940_800_000.0, "devfreq:3d00000.gpu": 305e6}
    assert seen.before.load is not None
    assert seen.before.uptime is not None
    assert seen.limits == {"cpu:policy0": 1_804_800_000.0, "devfreq:3d00000.gpu": 800e6}
    assert seen.maxima == {"cpu:policy0": 2_361_600_000.0}
    assert seen.governors == {"cpu:policy0": "ondemand", "devfreq:3d00000.gpu": "msm-adreno-tz"}
    assert seen.power == {"battery": "Not charging", "usb": "offline"}
    assert seen.boot_id == "09e6fc68-5acc-46ee-a216-11b37491dcf7"


def test_a_run_is_looked_at(board: Board, root: Path, tmp_path: Path) -> None:
    work = tmp_path / "work dir"
    temp = root / "sys/class/thermal/thermal_zone0/temp"
    change = f'echo 52000 > "{temp}.new"; mv "{temp}.new" "{temp}"'  # a reader sees old or new
    script = f"sleep 0.3; {change}; sleep 0.3; cat; exit 7"
    words = (str(work), "", "30", "prompt", "keep", "sh", "-c", script)
    command = run_command(0.1, *words)
    done = board.argv(command.argv, b"a prompt\n", {"FLEET_SYSROOT": str(root)})
    assert (done.returncode, done.stdout, done.stderr) == (7, b"a prompt\n", b"")
    seen = conditions_of((work / LOOKS).read_text(), 0.1)
    heats = [sample.zones["nspss-0"] for sample in seen.samples]
    assert len(seen.during) >= 3
    assert (heats[0], heats[-1]) == (41.3, 52.0)
    assert heats == sorted(heats)
    assert seen.after is not None
    assert seen.after.at >= 0.5
    assert seen.boot_id == seen.boot_id_after != ""
    assert seen.cost is not None


@pytest.mark.parametrize("shell", ["dash", "mksh"])
def test_looks_that_cost_too_much_wait(shell: str, root: Path, tmp_path: Path) -> None:
    """With 600 zones ten looks a second are more than 1% of a CPU; a few are left out."""
    board = Board(tmp_path, shell)
    for number in range(11, 600):
        folder = root / f"sys/class/thermal/thermal_zone{number}"
        folder.mkdir()
        (folder / "temp").write_text("40000\n")
    work = tmp_path / "w"
    words = (str(work), "", "30", "none", "keep", "sleep", "2.5")
    done = board.argv(run_command(0.1, *words).argv, env={"FLEET_SYSROOT": str(root)})
    assert (done.returncode, done.stderr) == (0, b"")
    seen = conditions_of((work / LOOKS).read_text(), 0.1)
    assert seen.after is not None
    gaps = [after.at - before.at for before, after in pairwise([*seen.during, seen.after])]
    assert seen.during
    assert len(seen.during) < 20
    assert max(gaps) >= 1.0


@pytest.mark.parametrize("shell", ["dash", "mksh"])
def test_without_sys_there_is_a_run_all_the_same(shell: str, tmp_path: Path) -> None:
    board = Board(tmp_path, shell)
    work = tmp_path / "w"
    words = (str(work), "", "30", "none", "keep", "sh", "-c", "sleep 0.3; exit 3")
    done = board.argv(run_command(0.1, *words).argv, env={"FLEET_SYSROOT": str(tmp_path / "no")})
    assert (done.returncode, done.stderr) == (3, b"")
    seen = conditions_of((work / LOOKS).read_text(), 0.1)
    assert seen.before is not None
    assert (seen.before.zones, seen.before.clocks, seen.power) == ({}, {}, {})
    assert seen.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


# The form of `dumpsys thermalservice`; the numbers are made up.
SERVICE = """#!/bin/sh
[ "$1" = thermalservice ] || exit 1
cat <<'END'
IsStatusOverride: false
Cached temperatures:
	Temperature{mValue=30.1, mType=3, mName=skin, mStatus=0}
Current temperatures from HAL:
	Temperature{mValue=41.5, mType=0, mName=CPU0, mStatus=0}
	Temperature{mValue=-274.0, mType=9, mName=NPU, mStatus=0}
END
"""


@pytest.mark.parametrize("shell", ["dash", "busybox", "mksh"])
def test_android_tells_by_its_service(shell: str, root: Path, tmp_path: Path) -> None:
    board, tools = Board(tmp_path, shell), tmp_path / "tools"
    tools.mkdir()
    (tools / "dumpsys").write_text(SERVICE)
    (tools / "dumpsys").chmod(0o755)
    env = {"FLEET_SYSROOT": str(root), "PATH": f"{tools}:{os.environ['PATH']}"}
    text = board.argv(look_command().argv, env=env).stdout.decode()
    assert "service" not in text, "the zones can be read"
    for path in root.glob("sys/class/thermal/*/temp"):
        path.unlink()
    text = board.argv(look_command().argv, env=env).stdout.decode()
    assert zones_of(text) == {"skin": 30.1, "CPU0": 41.5}
    words = (str(tmp_path / "w"), "", "30", "none", "keep", "sleep", "0.3")
    done = board.argv(run_command(0.1, *words).argv, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    seen = conditions_of((tmp_path / "w" / LOOKS).read_text())
    assert seen.before is not None
    assert seen.after is not None
    assert seen.before.zones == seen.after.zones == {"skin": 30.1, "CPU0": 41.5}
    assert all(sample.zones == {} for sample in seen.during)


@pytest.mark.parametrize("shell", ["dash", "busybox", "mksh"])
def test_looks_end_when_the_script_is_killed(shell: str, root: Path, tmp_path: Path) -> None:
    board = Board(tmp_path, shell)
    work = tmp_path / f"killed {os.getpid()}"
    words = (str(work), "", "60", "none", "keep", "sleep", f"30.{os.getpid()}")
    argv = (*board.shell, *run_command(0.1, *words).argv[1:])
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, env={**os.environ, "FLEET_SYSROOT": str(root)}
    )
    pause, deadline = threading.Event(), Deadline(10)
    looks = work / LOOKS
    while not (looks.exists() and "during" in looks.read_text()):
        assert not deadline.expired
        pause.wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while len(found(str(work))) > 1:  # the watchdog stays with the run
        assert not deadline.expired
        pause.wait(0.05)
    (work / ".running").unlink()
    for pid in found(f"sleep 30.{os.getpid()}"):
        os.kill(pid, signal.SIGKILL)


def found(words: str) -> list[int]:
    """Processes with these words in their command line."""
    done = subprocess.run(["pgrep", "-f", "--", words], capture_output=True, check=False)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("41300", 41.3),
        ("-1500", -1.5),
        ("200000", 200.0),
        *((bad, None) for bad in ("-274000", "0", "2147483", "2147483647", "-2147483648")),
        *((bad, None) for bad in ("41", "413", "999", "-40", "200001", "", "-", "n/a", "4e4")),
        ("4" * 40, None),
    ],
)
def test_what_is_a_temperature(text: str, value: float | None) -> None:
    assert celsius(text) == value


HEAD = "fleet-look 1\nboot 11111111-2222\nlist class/thermal/thermal_zone0/temp\n"


def test_a_long_run_is_thinned() -> None:
    looks = "".join(f"during {n}.5 1000:0:0:0:0 0.1 40000\n" for n in range(1, 1001))
    seen = conditions_of(f"{HEAD}before 0.1 - 0.1 40000\nstart 0.5\n{looks}")
    assert len(seen.during) <= MOST_SAMPLES
    assert seen.during[0].at == 1.0
    assert seen.during[1].at - seen.during[0].at == seen.during[2].at - seen.during[1].at == 4.0


@pytest.mark.parametrize(
    ("words", "cost"),
    [
        ("10000000:5:5:2:1", 0.004),  # 10 ms by itself, 30 ms of its children, in 10 s
        ("-:5:5:2:1", 0.013),  # a kernel without schedstat
        ("-", None),
        ("1:2:3", None),
        ("a:b:c:d:e", None),
    ],
)
def test_the_cost_of_looks(words: str, cost: float | None) -> None:
    assert conditions_of(f"{HEAD}start 5.0\nduring 15.0 {words} 0.1 40000\n").cost == cost


def test_a_damaged_line_is_not_there() -> None:
    text = HEAD + "before 1.0 - 0.1 40000\nduring 2.0 - 0.1\nduring 3.0 - 0.1 41000 9\nduri"
    seen = conditions_of(text)
    assert seen.before is not None
    assert seen.during == ()
    assert seen.after is None
    assert not seen.rebooted, "the second boot id is not known"


WORDS = [*HEAD.split(), "during", "before", "start", "is", "\n", "-", "1.0", "1:2:3:4:5"]


@given(st.text(max_size=400) | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_garbage_is_never_an_error(text: str) -> None:
    conditions_of(text)
    zones_of(HEAD + text)


def test_the_command_fits_into_dropbear() -> None:
    ticket = Ticket("/data/local/tmp/fleet-lease", 999_999_999, "f" * 32, 86400)
    words = ("/" + "x" * 200, "", "300", "prompt", "keep", *("/" + "y" * 150,) * 8)
    assert len(render(lease.guard(ticket, 60).then(run_command(1.0, *words)))) < DROPBEAR_BYTES
