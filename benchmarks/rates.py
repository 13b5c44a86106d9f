"""fleet beside cat, scp and rsync over links of a given rate: which limit binds?

    python benchmarks/rates.py --rate 1000 --size 1024 --rounds 7
    python benchmarks/rates.py --rate 2500 --shell slow --before ../main --json figures.json

Client and board are two network namespaces joined by a veth pair with `tc tbf`, both at real-time
priority, the board's files in memory. A slow login shell sleeps 96 ms for each command, as one
with pyenv, conda or nvm in its .bashrc does. `--before` adds the rows of another checkout. All
tools in turn within each round; what has arrived is hashed after each. Linux, as root.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.child import run
from bench.fleetrows import environment
from bench.sources import MIB, blob, hashes, tree

BOARD, CLIENT = "10.28.0.2", "10.28.0.1"
SLOW_SECONDS = 0.096
GCM = "aes128-gcm@openssh.com"
REAL_TIME = ("chrt", "-r", "10")
KEEN = 0.9  # share of a limit from which it binds
SSHD = """\
Port 22
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PermitRootLogin prohibit-password
UsePAM no
PidFile none
MaxStartups 100
Subsystem sftp /usr/lib/openssh/sftp-server
"""
SSH = """\
Host board
  HostName {address}
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  BatchMode yes
  Ciphers {cipher}
"""


def sh(*argv: str) -> str:
    """What a command says; it must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


class Ground:
    """A client and a board with a link between them; `work` is emptied before each push."""

    def __init__(self, folder: Path, mbit: float, shell: str) -> None:
        self.folder, self.mbit = folder, mbit
        self.work, self.home = folder / "work", folder / "home"
        self.names = [f"fleet-{side}-{os.getpid()}" for side in ("client", "board")]
        self._sshd: subprocess.Popen[bytes] | None = None
        self.home.mkdir()
        slow = f"sleep {SLOW_SECONDS}\n" if shell == "slow" else ""
        (self.home / ".bashrc").write_text(f"echo >> {folder}/shells\n{slow}", "utf-8")
        self._keys()

    def _keys(self) -> None:
        for name in ("host", "key"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{name}")
        pin = " ".join((self.folder / "host.pub").read_text("utf-8").split()[:2])
        values = {"folder": self.folder, "address": BOARD, "cipher": GCM}
        (self.folder / "known_hosts").write_text(f"{BOARD} {pin}\n", "utf-8")
        (self.folder / "sshd_config").write_text(SSHD.format(**values), "utf-8")
        (self.folder / "ssh_config").write_text(SSH.format(**values), "utf-8")
        host = {"host": BOARD, "user": "root", "base_dir": f"{self.work}/fleet"}
        host["identity_file"] = f"{self.folder}/key"
        host["known_hosts"] = f"{self.folder}/known_hosts"
        data = {"all": {"hosts": {"board": host}}}
        (self.folder / "hosts.yaml").write_text(json.dumps(data), "utf-8")  # JSON is YAML

    def __enter__(self) -> Self:
        for name in self.names:
            sh("ip", "netns", "add", name)
        sh("ip", "link", "add", "v0", "netns", self.names[0], "type", "veth",
           "peer", "name", "v0", "netns", self.names[1])  # fmt: skip
        for name, address in zip(self.names, (CLIENT, BOARD), strict=True):
            inside = ("ip", "netns", "exec", name)
            sh(*inside, "ip", "addr", "add", f"{address}/24", "dev", "v0")
            sh(*inside, "ip", "link", "set", "lo", "up")
            sh(*inside, "ip", "link", "set", "v0", "up")
            sh(*inside, "tc", "qdisc", "add", "dev", "v0", "root", "tbf",
               "rate", f"{self.mbit}mbit", "burst", "256kb", "latency", "10ms")  # fmt: skip
        Path("/run/sshd").mkdir(exist_ok=True)
        script = 'mount --bind "$1" /root && mount -t tmpfs none /var/tmp && shift && exec "$@"'
        self._sshd = subprocess.Popen(
            ["ip", "netns", "exec", self.names[1], "unshare", "-m", "sh", "-c", script, "board",
             str(self.home), *REAL_TIME, "/usr/sbin/sshd", "-D", "-e", "-f",
             f"{self.folder}/sshd_config"],
            stderr=(self.folder / "sshd.log").open("wb"), start_new_session=True,
        )  # fmt: skip
        end = time.monotonic() + 10
        while subprocess.run(
            [*self.client(), *self.ssh, "true"], stderr=subprocess.DEVNULL, check=False
        ).returncode:
            if time.monotonic() > end:
                raise SystemExit((self.folder / "sshd.log").read_text("utf-8"))
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._sshd is not None:
            self._sshd.terminate()
            self._sshd.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    @property
    def ssh(self) -> tuple[str, ...]:
        return ("ssh", "-F", f"{self.folder}/ssh_config", "board")

    def client(self) -> tuple[str, ...]:
        """What stands before a command of the workstation."""
        return ("ip", "netns", "exec", self.names[0], *REAL_TIME)

    def sent(self) -> int:
        """Bytes that went into the link on the workstation's side."""
        name = "/sys/class/net/v0/statistics/tx_bytes"
        return int(sh("ip", "netns", "exec", self.names[0], "cat", name))

    def board_cpu(self) -> float:
        """CPU seconds of the server and all that it started; waits until that has ended."""
        assert self._sshd is not None
        place, end = Path(f"/proc/{self._sshd.pid}"), time.monotonic() + 5
        while (place / f"task/{self._sshd.pid}/children").read_text().split():
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        words = (place / "stat").read_text("utf-8").rpartition(")")[2].split()
        return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")

    def shells(self) -> int:
        """How many login shells have started so far."""
        return (self.folder / "shells").read_text("utf-8").count("\n")

    def clean(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "in").mkdir(parents=True)


@dataclass(frozen=True)
class Tool:
    """A row: its command for a source; `python`: the checkout of a fleet."""

    name: str
    argv: Callable[[Path], Sequence[str]]
    python: Path | None = None


def tools(ground: Ground, before: Path | None, names: str, *, one_file: bool) -> list[Tool]:
    """All rows, or those named."""
    config, place = f"{ground.folder}/ssh_config", f"{ground.work}/in"
    fleet = ("-m", "fleet", "push", "-i", f"{ground.folder}/hosts.yaml", "--name")

    def cat(source: Path) -> Sequence[str]:
        what = f"cat {source}" if source.is_file() else f"tar -C {source.parent} -c {source.name}"
        there = f"cat > {place}/{source.name}" if source.is_file() else f"tar -C {place} -x"
        return ("sh", "-c", f"{what} | ssh -F {config} board '{there}'")

    def hashed(source: Path) -> Sequence[str]:
        """What any tool needs that knows the SHA-256 of what it sent and of what arrived."""
        digest = "openssl dgst -sha256"
        there = f"tee {place}/{source.name} | {digest}"
        return (
            "sh",
            "-c",
            f"{digest} {source} & cat {source} | ssh -F {config} board '{there}'; wait",
        )

    def rsync(source: Path) -> Sequence[str]:
        program = shutil.which("rsync") or "rsync"
        there = f"--rsync-path={program}"  # both ends share the file system
        return (program, "-ae", f"ssh -F {config}", there, str(source), f"board:{place}/")

    def push(source: Path) -> Sequence[str]:
        return (sys.executable, *fleet, source.name, str(source))

    found = [
        Tool("cat over ssh", cat),
        Tool("scp", lambda path: ("scp", "-qrF", config, str(path), f"board:{place}/")),
        Tool("rsync -a", rsync),
        Tool("fleet push", push, Path(__file__).parents[1]),
    ]
    if one_file:
        found.insert(1, Tool("cat and SHA-256", hashed))
    if before is not None:
        found.append(Tool("fleet before", found[-1].argv, before.resolve()))
    wanted = names.split(",") if names else []
    return [tool for tool in found if not wanted or any(word in tool.name for word in wanted)]


Sample = dict[str, float]


def once(ground: Ground, tool: Tool, source: Path, *, again: bool) -> Sample:
    """One push, hashed afterwards; `again`: the second of the same."""
    ground.clean()
    state = ground.folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    env = environment(state) | {"PYTHONPATH": str(tool.python or "")}
    env |= {"PYTHONPYCACHEPREFIX": f"{ground.folder}/pyc", "PYTHONDONTWRITEBYTECODE": ""}
    argv = (*ground.client(), *tool.argv(source))
    for first in (True, False) if again else (False,):
        board, sent, shells = ground.board_cpu(), ground.sent(), ground.shells()
        ran = run(argv, limit=120, env=env, cwd=ground.folder)
        if not ran.ok:
            raise SystemExit(f"{tool.name}: {ran.words}")
        if first:
            time.sleep(0.1)
    found = {
        "seconds": ran.seconds,
        "client": ran.cpu,
        "board": ground.board_cpu() - board,
        "sent": ground.sent() - sent,
        "shells": ground.shells() - shells,
    }
    top = ground.work / ("fleet/current" if tool.python else "in")
    top = top / source.name if tool.python and source.is_file() else top
    for name, digest in hashes(source).items():
        with (top / name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                raise SystemExit(f"{tool.name}: {name} is wrong on the board")
    return found


def binds(sample: Sample, mbit: float) -> str:
    """Which limit: a share of the link, or of one processor at either end."""
    wall = sample["seconds"]
    link = sample["sent"] * 8 / (mbit * 1e6) / wall
    busiest = max(sample["client"], sample["board"]) / wall
    what = "link" if link >= KEEN else "processor" if busiest >= KEEN else "neither"
    return f"{what} ({link:.0%}, {busiest:.0%})"


def table(rows: dict[str, list[Sample]], mbit: float) -> Iterator[str]:
    """Markdown; ratios are medians of those of each round."""
    base = next(iter(rows))
    heads = ("tool", "median s", "min..max", f"x {base}", "client CPU s", "board CPU s",
             "login shells", "binds (link, busiest end)")  # fmt: skip
    yield f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
    for name, samples in rows.items():
        middle = {key: statistics.median(s[key] for s in samples) for key in samples[0]}
        seconds = [sample["seconds"] for sample in samples]
        pairs = zip(samples, rows[base], strict=True)
        ratio = statistics.median(mine["seconds"] / its["seconds"] for mine, its in pairs)
        yield (
            f"| {name} | {middle['seconds']:.3f} | {min(seconds):.3f}..{max(seconds):.3f} "
            f"| {ratio:.3f} | {middle['client']:.2f} | {middle['board']:.2f} "
            f"| {middle['shells']:.0f} | {binds(middle, mbit)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rate", type=float, default=1000, help="of the link, Mbit/s")
    add("--shell", choices=("empty", "slow"), default="empty")
    add("--size", type=int, default=1024, help="of the new blob, MiB; 0: 20 files of 4 KiB")
    add("--again", action="store_true", help="the second push of the same: nothing to do")
    add("--rounds", type=int, default=7)
    add("--tools", default="", help="only rows whose names hold one of these (commas)")
    add("--before", type=Path, help="another checkout, as a row of its own")
    add("--json", type=Path, help="add the samples there, a line a run")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        source = folder / "source" / ("big" if given.size else "many")
        if given.size:
            blob(source, given.size * MIB)
        else:
            tree(source, 20, 1)
        ground = stack.enter_context(Ground(folder, given.rate, given.shell))
        found = tools(ground, given.before, given.tools, one_file=bool(given.size))
        rows: dict[str, list[Sample]] = {tool.name: [] for tool in found}
        load = os.getloadavg()[0]
        for tool in found:  # bytecode is there, as in an installed fleet
            once(ground, tool, source, again=given.again)
        for number in range(given.rounds):
            turn = number % len(found)
            for tool in (found[turn:] + found[:turn])[:: 1 if number % 2 else -1]:
                rows[tool.name].append(once(ground, tool, source, again=given.again))
    what = f"{given.size} MiB" if given.size else "20 files of 4 KiB"
    title = (f"{what}{', again' * given.again}, {given.rate:g} Mbit/s, {given.shell} login shell, "
             f"{given.rounds} rounds, load before {load:.1f}")  # fmt: skip
    print(f"{title}\n\n" + "\n".join(table(rows, given.rate)) + "\n")
    if given.json:
        with given.json.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"title": title, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
