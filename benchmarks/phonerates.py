"""fleet beside `adb push` over a link of a given rate: which limit binds?

    python benchmarks/phonerates.py --rate 40 --size 256 --rounds 7
    python benchmarks/phonerates.py --rate 250 --size 0 --before ../main     # 2,000 files of 4 KiB

A lab phone (real adbd) and the adb server in a network of their own, whose loopback has a `tc htb`
for the port of the phone only; files in memory. Phone and adb server go before the workstation,
both at real-time priority: a phone has processors of its own. USB's own latency is not there.
`bare` is a stream through the same link, without adb. Linux, as root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.child import run
from bench.fleetrows import environment
from bench.ground import PhoneGround
from bench.peers import shell
from bench.sources import MIB, blob, hashes, tree
from rates import REAL_TIME, Sample, Tool, sh, table

from fleet.lab import Lab, LabPhones

APART = "FLEET_PHONERATES"
NAME = "pushed"
PHONE_TIME = ("chrt", "-r", "20")


class Phone:
    """A lab phone behind a link of `rate` MB/s."""

    def __init__(self, lab: Lab, folder: Path, rate: float) -> None:
        self.ground, self.folder, self.rate = PhoneGround(lab, folder), folder, rate
        sh("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
        sh("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", "1:2", "htb",
           "rate", f"{rate * 8}mbit", "burst", "256kb", "cburst", "256kb",
           "quantum", "65536")  # fmt: skip
        self._slow(self.ground.phone.port)

    def _slow(self, port: int) -> None:
        sh("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "prio", "1",
           "u32", "match", "ip", "dport", str(port), "0xffff", "flowid", "1:2")  # fmt: skip

    def sent(self) -> int:
        """Bytes that went into the link."""
        words = sh("tc", "-s", "class", "show", "dev", "lo").split()
        return int(words[words.index("Sent") + 1])

    def cpu(self) -> tuple[float, float]:
        """CPU seconds so far of the adb server, and of all of the phone."""
        inside = Path(f"/proc/{self.ground.phone.pid}/ns/pid").readlink()
        server = phone = 0.0
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (place / "stat").read_text("utf-8").rpartition(")")[2].split()
                spent = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
                if (place / "ns/pid").readlink() == inside:
                    phone += spent
                elif f"tcp:{self.ground.port}".encode() in (place / "cmdline").read_bytes():
                    server += spent
        return server, phone

    def bare(self, size: int) -> float:
        """MB/s of a stream of so many bytes through the link, without adb."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._slow(listener.getsockname()[1])
            begun, left = time.monotonic(), size
            if os.fork() == 0:
                with socket.create_connection(listener.getsockname()) as link:
                    link.sendall(bytes(size))
                os._exit(0)
            link, _ = listener.accept()
            while left:
                left -= len(link.recv(MIB))
            link.close()
            os.wait()
        return size / 1e6 / (time.monotonic() - begun)


def tools(phone: Phone, before: Path | None, names: str) -> list[Tool]:
    """All rows, or those named."""
    ground = phone.ground

    def push(source: Path) -> Sequence[str]:
        return (*ground.adb, "push", str(source), f"{ground.inbox}/")

    def hashed(source: Path) -> Sequence[str]:
        there = f"{ground.inbox}/{source.name}"
        what = there if source.is_file() else f"{there}/*/*"
        far = f"sha256sum {what} > /dev/null && sync {there}"
        script = 'src=$1 to=$2 far=$3; shift 3; "$@" push "$src" "$to" && "$@" shell "$far"'
        return shell(script, source, f"{ground.inbox}/", far, *ground.adb)

    def fleet(source: Path) -> Sequence[str]:
        words = ("-m", "fleet", "push", "-i", str(ground.inventory), "--name", NAME)
        return (sys.executable, *words, str(source))

    found = [
        Tool("adb push", push),
        Tool("adb push, sha256sum, sync", hashed),
        Tool("fleet push", fleet, Path(__file__).parents[1]),
    ]
    if before is not None:
        found.append(Tool("fleet before", fleet, before.resolve()))
    wanted = names.split(",") if names else []
    return [tool for tool in found if not wanted or any(word in tool.name for word in wanted)]


def once(phone: Phone, tool: Tool, source: Path) -> Sample:
    """One push to an empty phone that fleet knows; hashed afterwards."""
    phone.ground.clean()
    env = environment(phone.folder / "state") | {"PYTHONPATH": str(tool.python or "")}
    env |= {"PYTHONPYCACHEPREFIX": f"{phone.folder}/pyc", "PYTHONDONTWRITEBYTECODE": ""}
    for path in [source, *source.rglob("*")]:
        os.utime(path)  # its hash is not known from the round before
    cpu, sent = phone.cpu(), phone.sent()
    ran = run((*REAL_TIME, *tool.argv(source)), limit=180, env=env, cwd=phone.folder)
    if not ran.ok:
        raise SystemExit(f"{tool.name}: {ran.words}")
    spent = [after - before for after, before in zip(phone.cpu(), cpu, strict=True)]
    top = f"{phone.ground.base}/current/{NAME}" if tool.python else phone.ground.inbox
    sent = phone.sent() - sent
    phone.ground.check(hashes(source), top)
    return {"seconds": ran.seconds, "client": ran.cpu, "server": spent[0], "board": spent[1],
            "sent": sent, "shells": 0}  # fmt: skip


def apart() -> None:
    """Come back as the root of a network of our own, at real-time priority."""
    if os.environ.get(APART):
        return
    argv = ["unshare", "-n", *PHONE_TIME, sys.executable, *sys.argv]
    os.execvpe(argv[0], argv, os.environ | {APART: "yes"})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rate", type=float, default=250, help="of the link, MB/s")
    add("--size", type=int, default=256, help="of the new blob, MiB; 0: 2,000 files of 4 KiB")
    add("--rounds", type=int, default=7)
    add("--tools", default="", help="only rows whose names hold one of these (commas)")
    add("--before", type=Path, help="another checkout, as a row of its own")
    given = parser.parse_args()
    apart()
    sh("ip", "link", "set", "lo", "up")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        source = folder / "source" / ("big" if given.size else "many")
        if given.size:
            blob(source, given.size * MIB)
        else:
            tree(source, 2000, 20)
        lab = stack.enter_context(Lab.up(folder / "lab", count=0, phones=LabPhones(1), base_port=0))
        phone = Phone(lab, folder, given.rate)
        found = tools(phone, given.before, given.tools)
        rows: dict[str, list[Sample]] = {tool.name: [] for tool in found}
        load, bare = os.getloadavg()[0], phone.bare(64 * MIB)
        for tool in found:  # bytecode is there, as in an installed fleet
            once(phone, tool, source)
        for number in range(given.rounds):
            turn = number % len(found)
            for tool in (found[turn:] + found[:turn])[:: 1 if number % 2 else -1]:
                rows[tool.name].append(once(phone, tool, source))
    what = f"{given.size} MiB" if given.size else "2,000 files of 4 KiB"
    print(f"{what}, {given.rate:g} MB/s (bare {bare:.1f}), {given.rounds} rounds, "
          f"load before {load:.1f}\n\n" + "\n".join(table(rows, given.rate * 8)))  # fmt: skip
    for name, samples in rows.items():
        server = statistics.median(sample["server"] for sample in samples)
        print(f"{name}: CPU s of the adb server {server:.2f}")


if __name__ == "__main__":
    main()
