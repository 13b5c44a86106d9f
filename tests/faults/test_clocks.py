"""Clocks that are wrong: no decision is made by the wall clock of a device, or of this host."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.model.inventory import Host

from .app import deploy, live, small

ROOT = Path(__file__).parents[2] / "fleet"
# What reads the wall clock, or the times of files, in a shell script.
SHELL = re.compile(
    r"(?<![\w./-])(date|touch|hwclock)(?![\w=/-])|-newer|-[amc](time|min)\b|\s-[no]t\s|%[XYZWxyzw]\b"
    r"|\bls -[A-Za-z]*t|EPOCH|\bSECONDS\b"
)
PYTHON = re.compile(
    r"time\.time\(|time_ns\(|datetime\.|gmtime|localtime|st_[amc]time|strftime|utc_text\("
)
# Where times of files on a device are compared: what they make doubtful is hashed, and all of
# it with `--verify`. `%Y %Z` are compared for equality only, as inode numbers are.
SHELL_ALLOWED = {
    # A log's own times beside the clock that wrote them.
    ("device/sh/run/logs.sh", "show journal young $(($(date +%s) - since))"),
    ("device/sh/run/logs.sh", 'syslog | awk -v iso="$(date -d'),
    ("device/sh/facts/doctor.sh", '[ "$f" -nt "$own/$mark" ] || continue'),
    # Whether the rules or nodes changed since udev was asked: of one device's times, by order.
    ("device/sh/system/system.sh", 'newest=$(stat -c %z "$R"/dev/fastrpc-*'),
    ("device/sh/system/system.sh", 'made=$(stat -c %z "$f" 2>/dev/null)'),
    ("device/sh/store/state.sh", '[ "$blob" -nt "$own/.installed" ]'),
    ("device/sh/store/state.sh", "'%i %s %Y %Z %n'"),
    ("device/sh/store/switch.sh", "'%i %s %Y %Z %n'"),
    ("device/sh/store/status.sh", 'made=$(stat -c %Y -- "$own/.installed"'),  # for people
}
# Where this host's clock is read: names and notes for people, and a cache that forgets too soon.
PYTHON_ALLOWED = {
    "bundles/aihub/pull.py",
    "content/hashes.py",
    "cli/serve.py",
    "cli/selftest.py",  # the name of the archive
    "model/home.py",
    "content/sources.py",  # the name of a state of a file
    "engine/cluster/blobs.py",
    "bundles/closure.py",  # for equality only
    "doctor/bundle.py",
    "doctor/recent.py",  # which log of a run on this host is the newest
    "engine/run/verify.py",  # when it was asked, for people
    "profiles/runs.py",
    "engine/rollout/journal.py",
    "engine/rollout/claim.py",  # which run was begun last; a run of the future is passed over
    "engine/deploy/fsck.py",  # when it passed, for people
    "engine/status.py",  # since when a release is there, for people
    "engine/run/run.py",
    "profiles/compare/conditions.py",  # hours between two sides, by what their records say
    "device/store/release.py",  # as state.sh
    "device/windows/board.py",  # as status.sh
    "device/store/stamp.py",  # for equality only, as state.sh
    "profiles/imports.py",
    "profiles/report/page.py",
    "profiles/store/rows.py",
    "profiles/store/store.py",  # a file's time, for equality only
    "runtimes/stage.py",
    "device/server/answers.py",  # `created` of an answer in OpenAI's form
    "device/server/server.py",  # lines of the log
    "transport/hostkeys.py",  # whether known_hosts is still the file that was read
    "transport/trustlog.py",
    "cli/session.py",  # a farm ends a session by the wall clock
    "engine/budget.py",
    "config/hostvars.py",
    "model/deadline.py",  # the text of a time, for people
}


def code(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return [line.strip() for line in lines if not line.strip().startswith("#")]


def test_no_device_script_reads_the_wall_clock() -> None:
    scripts = [path for path in ROOT.rglob("*.sh") if path.parts[-2] != "lab"]
    assert len(scripts) > 20
    found = {
        (path.relative_to(ROOT).as_posix(), line)
        for path in scripts
        for line in code(path)
        if SHELL.search(line)
    }
    strange = {
        (name, line)
        for name, line in found
        if not any(name == where and text in line for where, text in SHELL_ALLOWED)
    }
    assert not strange


def test_the_search_can_find() -> None:
    for line in ("now=$(date +%s)", "find . -newer x", "[ a -nt b ]", "ls -lt", "stat -c %Y f"):
        assert SHELL.search(line), line
    for line in ("validate it", "stat -c %s f", "[ $n -lt 5 ]", "update", "printf '%s\\n'"):
        assert not SHELL.search(line), line


def test_no_module_decides_by_the_clock_of_this_host() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if not path.is_relative_to(ROOT / "lab") and any(map(PYTHON.search, code(path)))
    }
    assert found <= PYTHON_ALLOWED


def test_no_program_for_devices_reads_the_wall_clock() -> None:
    programs = [*(ROOT / "device").rglob("*.py")]
    assert len(programs) >= 4
    told = {ROOT / name for name in PYTHON_ALLOWED}
    for path in set(programs) - told:
        assert not PYTHON.search(path.read_text("utf-8")), path


@pytest.mark.parametrize("when", [0, 4_000_000_000], ids=["1970", "2096"])
def test_file_times_of_any_year_change_nothing(
    host: Host, base: Path, tmp_path: Path, when: int
) -> None:
    old, new = small(tmp_path / "old", "o"), small(tmp_path / "new", "n")
    deploy(host, old)
    stamp(base, when)
    assert deploy(host, old).payload_bytes == 0
    deploy(host, new)
    stamp(base, 4_000_000_000 - when)
    assert live(base, new) is new
    assert deploy(host, new).payload_bytes == 0
    assert {path.name for path in (base / "releases" / "app").iterdir()} == {old.id, new.id}


def stamp(base: Path, when: int) -> None:
    for path in base.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)


def test_a_board_whose_date_lies(lab: Lab, board: Host, tmp_path: Path) -> None:
    """`date` and `touch` answer nonsense; a deploy and a second one do not ask them."""
    lie = """for f in date touch hwclock; do
      rm -f /usr/bin/$f
      printf '#!/bin/sh\\necho asked >> /tmp/asked\\necho 1 Jan 1970\\n' > /usr/bin/$f
      chmod 755 /usr/bin/$f
    done; chmod 1777 /tmp"""
    done = lab.exec("lab001", ["sh", "-c", lie])
    assert done.returncode == 0, done.stderr
    app = small(tmp_path / "src", "n")
    deploy(board, app)
    assert deploy(board, app).payload_bytes == 0
    assert lab.exec("lab001", ["cat", "/tmp/asked"]).returncode != 0, "somebody asked"


def test_this_host_s_clock_may_jump(
    host: Host, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases and deadlines go by clocks that only go on."""
    real, calls = time.time, [0]

    def jumping() -> float:
        calls[0] += 1
        return real() + (-1.0) ** calls[0] * 10**8

    monkeypatch.setattr(time, "time", jumping)
    app = small(tmp_path / "src", "n")
    deploy(host, app)
    assert live(base, app) is app
