"""`fleet shell` on a real board: a terminal where there is one, and the exit code of the shell."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from fleet.device.store.links_posix import PosixLinks
from tests.transport.sshd import make_key

from .desk import ROOT, Desk


def typed(desk: Desk, text: str, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "fleet", "shell", "evk-1", "-i", str(desk.inventory), *args]
    return subprocess.run(
        argv, input=text, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


def test_what_is_piped_in_runs_there_and_the_exit_code_comes_back(desk: Desk) -> None:
    assert desk.fleet("ann@desk", "reserve", "evk-1").returncode == 0
    done = typed(desk, "echo $SSH_CONNECTION | cut -d' ' -f3; exit 7\n")
    assert (done.returncode, done.stdout) == (7, "127.0.0.1\n"), done.stderr
    assert "evk-1: warning: the board is reserved by ann@desk" in done.stderr
    refused = typed(desk, "echo never\n", "--lease")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "reserved by ann@desk" in refused.stderr


def test_env_is_that_of_the_live_release(desk: Desk) -> None:
    base = desk.folder / "base1"
    nothing = desk.fleet("ann@desk", "shell", "evk-1", "--env")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "has no release" in nothing.stderr
    for name in ("app", "other"):
        (base / "releases" / name / "01" / "bin").mkdir(parents=True)
        (base / "meta" / name / "01").mkdir(parents=True)
        text = f"export LD_LIBRARY_PATH={base}/releases/{name}/01/lib\n"
        (base / "meta" / name / "01" / "env.sh").write_text(text)
        tool = base / "releases" / name / "01" / "bin" / "its-tool"
        tool.write_text('#!/bin/sh\necho "$QNN_SDK_ROOT" "$LD_LIBRARY_PATH"\n')
        tool.chmod(0o755)
        (base / "current").mkdir(exist_ok=True)
        (base / "current" / name).symlink_to(f"../releases/{name}/01")
        file, text = PosixLinks().login(str(base), name)
        (base / "env").mkdir(exist_ok=True)
        (base / "env" / file).write_text(text)
    done = typed(desk, "its-tool; exit 7\n", "--release", "other")
    root = base.resolve() / "releases" / "other" / "01"
    assert (done.returncode, done.stdout) == (7, f"{root} {base}/releases/other/01/lib\n")
    several = desk.fleet("ann@desk", "shell", "evk-1", "--env")
    assert (several.returncode, several.stdout) == (2, "")
    assert "several releases: app, other" in several.stderr
    assert "fleet shell evk-1 --env --release app" in several.stderr
    wrong = desk.fleet("ann@desk", "shell", "evk-1", "--release", "none")
    assert (wrong.returncode, "no release none" in wrong.stderr) == (2, True)


def test_a_terminal_here_is_one_there(desk: Desk) -> None:
    argv = [sys.executable, "-m", "fleet", "shell", "evk-1", "-i", str(desk.inventory)]
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(argv[0], argv)
    os.write(master, b"test -t 0 && echo is-a-$((40 + 2)); exit 9\n")
    said = b""
    while b"is-a-42" not in said:
        said += os.read(master, 1024)
    while True:
        try:
            os.read(master, 1024)
        except OSError:  # EIO: the other end is closed
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_another_host_key_is_refused_before_the_terminal(desk: Desk) -> None:
    known = desk.folder / "one" / "known_hosts"
    place = known.read_text().split()[0]
    kind, key = make_key(desk.folder / "other").with_suffix(".pub").read_text().split()[:2]
    known.write_text(f"{place} {kind} {key}\n")
    done = typed(desk, "echo never\n")
    assert (done.returncode, done.stdout) == (3, "")
