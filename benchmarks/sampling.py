"""What looking at a device during a run costs it: the share of one CPU, by shell and sensors.

Two measures of the same runs: what the looking process says of itself (Conditions.cost), and
from outside, the CPU time of all processes of a run with looks minus that of a run without;
this process adopts what a run leaves behind, so nothing is missed. The files that stand for
sensors are links to an attribute of the real sysfs. Emulated: the drivers of a real board's
sensors are not in it. Run: python benchmarks/sampling.py --seconds 20
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from fleet.device.shell import device_script
from fleet.ops.looks import LOOKS, conditions_of, run_command

ATTRIBUTE = "/sys/class/net/lo/mtu"
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "mksh": ["mksh"], "bash": ["bash"]}


def sensors(root: Path, zones: int, policies: int) -> None:
    """A /sys of links: zones, policies and two devfreq devices."""
    for number in range(zones):
        folder = root / f"sys/class/thermal/thermal_zone{number}"
        folder.mkdir(parents=True)
        (folder / "type").write_text(f"zone-{number}\n")
        (folder / "temp").symlink_to(ATTRIBUTE)
    for number in range(policies):
        folder = root / f"sys/devices/system/cpu/cpufreq/policy{number}"
        folder.mkdir(parents=True)
        for name in ("scaling_cur_freq", "scaling_max_freq", "cpuinfo_max_freq"):
            (folder / name).symlink_to(ATTRIBUTE)


def adopted() -> float:
    """CPU seconds of all children so far; waits for those that are still there."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(shell: list[str], root: Path, work: Path, seconds: float, every: float | None) -> float:
    """CPU seconds of one run of `sleep`."""
    words = (str(work), "", "600", "none", "keep", "sleep", f"{seconds:g}")
    command = device_script("run", *words) if every is None else run_command(every, *words)
    before = adopted()
    subprocess.run(
        [*shell, *command.argv[1:]],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "FLEET_SYSROOT": str(root)},
        check=True,
    )
    return adopted() - before


def main() -> None:
    """Print one row a combination."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--zones", default="4,48,96")
    parser.add_argument("--every", default="1,0.2")
    parser.add_argument("--shells", default="dash,busybox,mksh,bash")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    uname, load = os.uname(), os.getloadavg()[0]
    print(f"{time.strftime('%Y-%m-%d')}, {uname.sysname} {uname.release}, "
          f"{os.cpu_count()} CPUs, load {load:.1f}, {options.seconds:g} s a run, "
          f"median of {options.rounds}")  # fmt: skip
    print("| shell | zones | looks every | says itself | from outside | before and after |")
    print("|---|---|---|---|---|---|")
    for name in options.shells.split(","):
        if shutil.which(SHELLS[name][0]) is None:
            continue
        for zones in map(int, options.zones.split(",")):
            for every in map(float, options.every.split(",")):
                row(name, zones, every, options.seconds, options.rounds)


def row(name: str, zones: int, every: float, seconds: float, rounds: int) -> None:
    """Medians of some runs; the two looks before and after are told apart by a short run."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sensors(place / "root", zones, 3)
        own, outside, ends = [], [], []
        for number in range(rounds):
            work = place / f"w{number}"
            with_looks = run(SHELLS[name], place / "root", work, seconds, every)
            plain = run(SHELLS[name], place / "root", place / f"p{number}", seconds, None)
            short = run(SHELLS[name], place / "root", place / f"s{number}", 0.01, every)
            bare = run(SHELLS[name], place / "root", place / f"b{number}", 0.01, None)
            both = max(0.0, short - bare)
            ends.append(both)
            outside.append((with_looks - plain - both) / seconds)
            cost = conditions_of((work / LOOKS).read_text()).cost
            own.append(cost if cost is not None else float("nan"))
    middle = rounds // 2
    print(
        f"| {name} | {zones} | {every:g} s | {sorted(own)[middle]:.2%} "
        f"| {sorted(outside)[middle]:.2%} | {sorted(ends)[middle] * 1000:.0f} ms of CPU |",
        flush=True,
    )


if __name__ == "__main__":
    main()
