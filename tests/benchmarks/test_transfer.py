"""The benchmark script itself: a tiny run on a user board, and the parts that touch processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.bench import sources
from benchmarks.bench.child import RUN, run
from benchmarks.bench.compare import Bench, Case, compare
from benchmarks.bench.ground import BoardGround
from benchmarks.bench.link import slow_link
from benchmarks.bench.peers import PEERS
from benchmarks.bench.tools import Command, Tool
from fleet.lab import Lab
from tests.transport.sshd import SSHD

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "transfer.py"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardGround]:
    if SSHD is None:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    folder = tmp_path_factory.mktemp("bench")
    with Lab.up(folder / "lab", count=1, kind="user", base_port=0) as lab:
        yield BoardGround(lab, folder)


@pytest.mark.slow
def test_a_tiny_run_writes_figures_chart_and_page(tmp_path: Path) -> None:
    if SSHD is None:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    figures, docs = tmp_path / "figures.json", tmp_path / "benchmarks.md"
    size = ("--scale", "0.0005", "--rounds", "1", "--boards", "user", "--tools", "scp,fabric")
    memory = () if Path("/dev/shm").is_dir() else ("--disk",)
    out = ("--json", figures, "--docs", docs)
    argv = [sys.executable, SCRIPT, "--scenario", "ac", *size, *memory, *out]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    data = json.loads(figures.read_text())
    blob, same = data["results"]
    assert [blob["scenario"], same["scenario"]] == ["a", "c"]
    rows = {row["name"]: row["samples"] for row in blob["rows"]}
    assert {"fleet push", "fleet, Python API", "cat over ssh", "tar over ssh", "scp"} <= set(rows)
    notes = {row["name"]: row["note"] for row in blob["rows"]}
    assert not any(notes.values()), done.stderr
    assert all(samples[0]["seconds"] > 0 for samples in rows.values())
    assert rows["fleet, Python API"][0]["payload_bytes"] == int((1 << 30) * 0.0005)
    assert next(row for row in same["rows"] if "API" in row["name"])["samples"][0][
        "payload_bytes"
    ] == 0  # fmt: skip
    assert blob["missing"]["fabric put"].startswith("pip install fabric")
    assert len(blob["verdicts"]) == 3
    assert str(tmp_path) not in docs.read_text()
    assert "One new blob of 524.3 KiB" in docs.read_text()
    ET.parse(docs.with_suffix(".svg"))


def test_a_wrong_result_ends_the_benchmark(ground: BoardGround, tmp_path: Path) -> None:
    source = sources.tree(tmp_path / "many", 6, 3)
    wanted, one = sources.hashes(source), ground.endpoint
    ground.clean()
    shutil.copytree(source, Path(one.inbox) / "many")
    assert ground.check(wanted, one, one.inbox) > 0
    sources.change(Path(one.inbox) / "many" / "d01" / "f001", 1, 100, sources.SETTLED)
    with pytest.raises(SystemExit, match=r"1 of 6 files are wrong or missing, first many/d01/f001"):
        ground.check(wanted, one, one.inbox)
    ground.clean()
    with pytest.raises(SystemExit, match="is not there"):
        ground.check(wanted, one, one.inbox)


def test_what_arrived_may_have_lost_its_first_folder() -> None:
    wanted = {"many/a": "1", "many/b/c": "2"}
    assert sources.arrived(wanted, {"in/many/a": "1", "in/many/b/c": "2", "other": "3"}) == ""
    assert sources.arrived(wanted, {"in/a": "1", "in/b/c": "2"}) == ""
    assert "many/b/c" in sources.arrived(wanted, {"in/many/a": "1", "in/many/b/c": "9"})
    assert sources.arrived({"big": "1"}, {"notbig": "1"})


def test_a_peer_that_fails_is_noted_and_not_tried_again(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    code = f"open({str(tried)!r}, 'a').write('x'); raise SystemExit(3)"
    broken = Tool("broken", lambda _: Command((sys.executable, "-c", code)))
    fine = Tool("fine", lambda _: Command(("true",)))
    absent = Tool("absent", lambda _: Command(()), programs=("no-such-program",), get="apt it")
    tools = {tool.name: tool for tool in (broken, fine, absent)}
    case = Case(lambda tool: tools[tool.name].build(None), lambda _: None)  # type: ignore[arg-type]
    rows, missing = compare(Bench(tmp_path, rounds=3), list(tools.values()), case)
    found = {row.name: row for row in rows}
    assert (found["broken"].note, tried.read_text()) == ("failed with status 3", "x")
    assert found["broken"].samples == [None] * 3
    assert len(found["fine"].values()) == 3
    assert missing == {"absent": "apt it"}


def test_a_fleet_that_fails_ends_it(tmp_path: Path) -> None:
    fleet = Tool("fleet", lambda _: Command(("false",)), "fleet")
    case = Case(lambda _: Command(("false",)), lambda _: None)
    with pytest.raises(SystemExit, match="fleet failed"):
        compare(Bench(tmp_path, rounds=1), [fleet], case)


def test_nothing_of_a_run_stays_behind(tmp_path: Path) -> None:
    """A worker in a session of its own, as Ansible's are, ends with the run."""
    worker = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    code = (
        "import subprocess as s, sys;"
        f"p = s.Popen([sys.executable, '-c', {worker!r}], stdout=s.PIPE);"
        "print(p.stdout.readline().decode())"
    )
    ran = run([sys.executable, "-c", code], limit=60, env={}, cwd=tmp_path)
    assert ran.ok
    pid = int(ran.out)
    end = time.monotonic() + 20
    while _is_ours(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _is_ours(pid)


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    ran = run(["sh", "-c", "sleep 600; true"], limit=0.2, env={}, cwd=tmp_path)
    assert not ran.in_time
    assert not ran.ok


def _is_ours(pid: int) -> bool:
    try:
        return RUN.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_run_says_what_it_cost(tmp_path: Path) -> None:
    code = "sum(range(3_000_000)); print('FIGURES', '{\"inner\": 0.25}'); print('later')"
    ran = run([sys.executable, "-c", code], limit=60, env={"A": "b"}, cwd=tmp_path)
    assert ran.ok
    assert ran.cpu > 0
    figures = ran.figures()
    assert figures["inner"] == 0.25
    assert figures["seconds"] == ran.seconds > 0
    assert not run(["sh", "-c", "exit 7"], limit=60, env={}, cwd=tmp_path).ok


def test_the_slow_link_carries_everything_and_is_slow() -> None:
    """Lower bounds only: a busy machine can but add to them."""
    payload = os.urandom(300_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        began = time.monotonic()
        with (
            slow_link(server.getsockname()[1], 60, 24) as port,
            socket.create_connection(("127.0.0.1", port), 20) as link,
        ):
            threading.Thread(target=_send, args=(link, payload), daemon=True).start()
            back = b"".join(iter(lambda: link.recv(65536), b""))
    assert back == payload
    assert time.monotonic() - began >= 0.06 + len(payload) / 3e6


def _echo(server: socket.socket) -> None:
    """Everything, and only when the other side has ended."""
    peer, _ = server.accept()
    with peer:
        whole = b"".join(iter(lambda: peer.recv(65536), b""))
        peer.sendall(whole)


def _send(link: socket.socket, payload: bytes) -> None:
    link.sendall(payload)
    link.shutdown(socket.SHUT_WR)


def test_every_peer_that_is_asked_for_stands_in_the_table_of_peers() -> None:
    system, python = ("cat", "scp", "sftp", "rsync", "tar"), ("paramiko", "fabric", "asyncssh")
    for word in (*system, *python, "ansible", "pyinfra"):
        assert any(word in name for name in PEERS), word
    assert all(tool.lacks(None, lambda _: True) for tool in PEERS.values() if tool.module)
