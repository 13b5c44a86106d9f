"""The scripts of a service under every shell, with a server that only sleeps; units; answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.device.shell import device_script
from fleet.device.texts import path_of
from fleet.model.errors import DeviceError, InputError
from fleet.ops import serving
from fleet.ops.serving import ServiceSeen, parse_service, unit_text
from tests import needs

from .board import SHELLS, Board, manifest

SERVER = b"""import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
status = folder / "end-with"
if status.exists():
    sys.exit(int(status.read_text()))
if (folder / "deaf").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / "up").write_text("x")
time.sleep(600)
"""


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


class Kept:
    """A board with a release that has our scripts and a server that sleeps."""

    def __init__(self, board: Board, root: Path) -> None:
        self.board = board
        board.tools.mkdir(exist_ok=True)  # the supervisor runs in this shell too
        (board.tools / "sh").symlink_to(board.shell[0])
        content = {
            "run/fleet_server.py": SERVER,
            "bundle/x": b"x",
            **{f"run/{n}.sh": path_of(f"{n}.sh").read_bytes()
               for n in ("serve_launch", "serve_supervise")},
        }  # fmt: skip
        self.app = manifest(root / "src", content)
        board.deploy(self.app)
        self.base = str(board.base)
        self.folder = board.base / "serve" / "app"

    def put(self, *, new: bool = False, token: str = "t" * 20) -> None:
        command = serving.put_command(self.base, "app", self.app.id, new_token=new)
        done = self.board.argv(command.argv, f'{token}\n{{"port": 1}}'.encode())
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        folder = serving.service_dir(self.base, "app")
        done = self.board.argv(device_script("serve_start", folder).argv)
        assert done.returncode == 0, done.stderr

    def seen(self) -> ServiceSeen:
        done = self.board.argv(serving.state_command(self.base, "app").argv)
        return parse_service(done.stdout.decode(), "board")

    def stop(self, seconds: float = 5) -> str:
        done = self.board.argv(serving.stop_command(self.base, "app", seconds).argv)
        return done.stdout.decode().strip()


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    one = Kept(Board(tmp_path, getattr(request, "param", "dash")), tmp_path)
    yield one
    one.stop(1)


@pytest.mark.parametrize("kept", [one for one in SHELLS if "+" not in one], indirect=True)
def test_a_server_that_is_killed_is_started_again(kept: Kept) -> None:
    kept.put()
    assert kept.seen().kept_by is None
    kept.start()
    until((kept.folder / "up").exists)
    first = kept.seen()
    assert (first.kept_by, first.release, first.current) == ("none", kept.app.id, kept.app.id)
    assert (first.token, first.port, first.restarts) == (True, 1, None)
    assert first.server is not None
    os.kill(first.server, signal.SIGKILL)
    until(lambda: kept.seen().server not in (None, first.server))
    again = kept.seen()
    assert (again.keeper, again.restarts, again.ended) == (first.keeper, 1, 137)
    assert kept.stop() == "stopped"
    after = kept.seen()
    assert (after.kept_by, after.pid) == (None, None)
    state = Path(f"/proc/{again.server}/stat")
    assert not state.exists() or ") Z " in state.read_text(), "it may wait for init to reap it"


def test_one_that_cannot_start_is_not_tried_again(kept: Kept) -> None:
    kept.put()
    (kept.folder / "end-with").write_text("10")
    kept.start()
    until(lambda: kept.seen().failed)
    until(lambda: kept.seen().kept_by is None)
    assert kept.stop(1) == "absent"


def test_a_deaf_server_is_killed_and_no_other_process_is(kept: Kept) -> None:
    kept.put()
    (kept.folder / "deaf").touch()
    kept.start()
    until((kept.folder / "up").exists)
    assert kept.stop(1) == "killed"
    other = subprocess.Popen(["sleep", "60"])
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (kept.folder / "server").write_text(f"{other.pid} 1 {boot}\n")
        (kept.folder / "keeper").write_text(f"{other.pid} 1 {boot}\n")
        assert kept.seen().kept_by is None, "another process with that number"
        assert kept.stop(1) == "absent"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_token_stays_until_another_one_is_wanted(kept: Kept) -> None:
    kept.put(token="first")
    kept.put(token="second")
    file = kept.folder / "token"
    assert file.read_text() == "first\n"
    assert file.stat().st_mode & 0o077 == 0
    kept.put(token="third", new=True)
    assert file.read_text() == "third\n"


def test_pruning_leaves_what_is_served(kept: Kept, tmp_path: Path) -> None:
    kept.put()
    served = kept.app.id
    for number in range(3):
        app = manifest(tmp_path / "src", {"bundle/x": b"%d" % number})
        kept.board.deploy(app)
        done = kept.board.run("prune", kept.base, "app", "1")
        assert done.returncode == 0, done.stderr
    assert (kept.board.base / "releases" / "app" / served / "run" / "fleet_server.py").exists()
    (kept.folder / "release").unlink()
    kept.board.run("prune", kept.base, "app", "1")
    assert not (kept.board.base / "releases" / "app" / served).exists()


def test_what_a_device_says_makes_sense_or_is_an_error() -> None:
    lines = ["noise", "fleet-serve 1", "user yes", "unit user ActiveState active",
             "unit user MainPID 41", "linger no", "current b", "release a", "token yes",
             'config {"port": 8000, "name": "a b"}', "end"]  # fmt: skip
    seen = parse_service("\n".join(lines), "b")
    assert (seen.kept_by, seen.pid, seen.older, seen.port) == ("user", 41, True, 8000)
    assert seen.linger == "no"
    for bad in ("alive server x", "unit user", "config {", "restarts"):
        with pytest.raises(DeviceError):
            parse_service(f"fleet-serve 1\n{bad}\nend", "b")


def test_a_unit_holds_any_folder(tmp_path: Path) -> None:
    text = unit_text('/home/x y/100%/$HOME/"q"', "tiny", 20.0)
    (line,) = [one for one in text.splitlines() if one.startswith("ExecStart=")]
    folder = '/home/x y/100%%/$$HOME/\\"q\\"/serve/tiny'
    assert line == f'ExecStart=/bin/sh "{folder}/release/run/serve_launch.sh" "{folder}"'
    assert "User=" not in text
    assert "WantedBy=default.target" in text
    system = unit_text("/home/u", "tiny", 20.0, "ubuntu")
    assert "User=ubuntu" in system
    assert "WantedBy=multi-user.target" in system
    with pytest.raises(InputError):
        unit_text("/home/a\nExecStartPre=/bin/rm", "tiny", 1.0)
    checker = needs.tool("systemd-analyze", "systemd")
    path = tmp_path / "fleet-tiny.service"
    path.write_text(unit_text(str(tmp_path), "tiny", 20.0))
    subprocess.run([checker, "verify", str(path)], check=True, timeout=60)


SYSTEMCTL = """#!/bin/sh
# Stands in for systemd: one line for each call; `show` says what was started.
scope=$1; shift
[ "$scope" = --user ] || exit 1
printf '%s\\n' "$*" >> "$STATE/calls"
case $1 in
  is-system-running) echo degraded ;;
  restart) : > "$STATE/active" ;;
  stop) rm -f "$STATE/active" ;;
  show) if [ -e "$STATE/active" ]; then echo ActiveState=active; echo MainPID=77
        else echo ActiveState=inactive; echo MainPID=0; fi ;;
esac
"""


def test_a_unit_of_the_user(tmp_path: Path) -> None:
    board = Board(tmp_path, "dash")
    board.tools.mkdir()
    (board.tools / "systemctl").write_text(SYSTEMCTL)
    (board.tools / "systemctl").chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    env = {"STATE": str(state), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "conf")}

    def seen() -> ServiceSeen:
        command = serving.state_command(str(board.base), "app")
        return parse_service(board.argv(command.argv, env=env).stdout.decode(), "b")

    assert seen().user_systemd
    assert seen().kept_by is None
    text = unit_text(str(board.base), "app", 5.0)
    done = board.argv(serving.unit_command("start", "app").argv, text.encode(), env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "conf/systemd/user/fleet-app.service").read_text() == text
    assert (seen().kept_by, seen().pid) == ("user", 77)
    done = board.argv(serving.unit_command("stop", "app").argv, env=env)
    assert done.returncode == 0, done.stderr
    assert seen().kept_by is None
    calls = [one for one in (state / "calls").read_text().splitlines()
             if one.split()[0] not in {"show", "is-system-running"}]  # fmt: skip
    unit = "-- fleet-app.service"
    assert calls == ["daemon-reload", f"enable {unit}", f"restart {unit}",
                     f"disable {unit}", f"stop {unit}"]  # fmt: skip


def test_config_of_a_device_is_data(tmp_path: Path) -> None:
    board = Board(tmp_path, "dash")
    folder = board.base / "serve" / "app"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"port": 1, "x": "a\nend"}))
    done = board.run("serve_state", str(board.base), "app", "u.service")
    assert parse_service(done.stdout.decode(), "b").config["port"] == 1
    assert device_script("serve_state").argv[0] == "sh"
