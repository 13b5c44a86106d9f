"""`fleet config session`: the tunnel command of a farm, the file of sessions, and the budget."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.cli import session
from fleet.cli.session import HEADER, FarmLine, parsed_line
from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.budget import (
    CLEAN_SECONDS,
    allowed,
    judged,
    left,
    require_time,
    too_long,
    within,
)
from fleet.engine.session import Session
from fleet.lab.lab import Lab, LabPhones
from fleet.model.deadline import Deadline, Stall
from fleet.model.errors import BudgetError, DeviceError, InputError
from fleet.model.files import FileRef
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, DevicePlan, ProbeHealth, SendBlobs
from fleet.ops.lease import end_command
from fleet.transport.local import LocalTransport
from tests.bundles.conftest import make_facts
from tests.warm import fleet

FAR = "sa775049.sa.svc.cluster.local"


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qdc.pem").write_text("k")
    return tmp_path / "qdc.pem"


@pytest.mark.parametrize(
    ("line", "local", "port", "gateway"),
    [
        (f"ssh -i qdc.pem -L 2222:{FAR}:22 -N t@gw.test", "2222", 22, "t@gw.test"),
        (f"ssh -i qdc.pem \\\n    -L <ADB_PORT>:{FAR}:5037 \\\n    -N t@gw.test", "", 5037,
         "t@gw.test"),
        (f"ssh -o UpdateHostKeys=no -p 2200 -NL 127.0.0.1:5:{FAR}:22 -i qdc.pem -l t gw.test",
         "5", 22, "t@gw.test:2200"),
        (f"ssh -i <PRIVATE_KEY_FILE_PATH> -L 2222:{FAR}:22 -N t@gw.test", "2222", 22, "t@gw.test"),
        (f"ssh -o IdentityFile=qdc.pem -oPort=2200 -o 'User t' -L 5:{FAR}:22 -p 9 -N gw.test", "5",
         22, "t@gw.test:2200"),
    ],
)  # fmt: skip
def test_the_tunnel_commands_of_farms(
    key: Path, line: str, local: str, port: int, gateway: str
) -> None:
    given = key if "<PRIVATE" in line else None
    assert parsed_line(line, given) == FarmLine(str(key), local, FAR, port, gateway)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ssh -i qdc.pem t@gw", "not a tunnel command"),
        (f"scp -i qdc.pem -L 1:{FAR}:22 t@gw", "not a tunnel command"),
        (f"ssh -i qdc.pem -L 1:{FAR}:22 t@gw 'rm -rf /'", "not a tunnel command"),
        (f"ssh -i <PRIVATE_KEY_FILE_PATH> -L 1:{FAR}:22 -N t@gw", "private key <PRIVATE_KEY"),
        (f"ssh -L 1:{FAR}:22 -N t@gw", "private key .the line names none"),
        ("ssh -i 'qdc.pem", "no ssh command"),
        (f"ssh -i qdc.pem -L 1:{FAR}:\u00b2 -N t@gw", "not a tunnel command"),
        (f"ssh -i qdc.pem -L 1:{FAR}:22 -L 2:other:22 -N t@gw", "not a tunnel command"),
        (f"ssh -i qdc.pem -J other@gw2 -L 1:{FAR}:22 -N t@gw", "not a tunnel command"),
        (f"ssh -i qdc.pem -o ProxyJump=gw2 -L 1:{FAR}:22 -N t@gw", "not a tunnel command"),
        ("", "not a tunnel command"),
    ],
)
@pytest.mark.usefixtures("key")
def test_other_commands_are_refused(line: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parsed_line(line)


def test_an_inventory_of_a_person_is_not_changed(key: Path) -> None:
    mine = key.with_name("mine.yaml")
    mine.write_text("all: {hosts: {evk: }}\n")
    line = f"ssh -i {key} -L 2222:{FAR}:22 -N t@gw"
    done = fleet("config", "session", line, "-i", mine, cwd=key.parent)
    assert (done.returncode, mine.read_text()) == (2, "all: {hosts: {evk: }}\n")
    assert "fleet does not change" in done.stderr
    odd = line.replace(FAR, "-oProxyCommand=x")
    done = fleet("config", "session", odd, "-i", "s.yaml", cwd=key.parent)
    assert done.returncode == 2
    assert not key.with_name("s.yaml").exists()


def test_only_one_session_is_ended_and_only_sessions_are_in_the_file(key: Path) -> None:
    keys = '{"until": "2030-01-01T00:00:00Z", "host": "127.0.0.1", "port": 1}'
    file, text = key.with_name("s.yaml"), f"{HEADER}all:\n  hosts:\n    sa1: {keys}\n"
    file.write_text(f"{text}    sa2: {keys}\n")
    for name in ("all", "sa*", "sa3"):
        done = fleet("config", "session", "--end", name, "-i", "s.yaml", cwd=key.parent)
        assert (done.returncode, "has no session of" in done.stderr) == (2, True), done.stderr
    file.write_text(f"{text}    mine: {{host: 127.0.0.1}}\n")
    done = fleet("config", "session", "--end", "sa1", "-i", "s.yaml", cwd=key.parent)
    assert (done.returncode, "mine in s.yaml has no `until:`" in done.stderr) == (2, True)


def test_two_boards_that_are_named_by_address_are_two(key: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(session, "_pinned", lambda *_, **__: {})
    for board in ("10.1.2.3", "10.1.2.4"):
        keys = {"until": "2030-01-01T00:00:00Z"}
        session._added(Path("s.yaml"), FarmLine(str(key), "1", board, 22, "t@gw"), keys, False)
    hosts = load_inventory(Path("s.yaml")).hosts
    assert [host.name for host in hosts] == ["10.1.2.3", "10.1.2.4"]


def test_a_session_that_is_over_leaves_the_file(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_pinned", lambda *_, **__: {})
    for board, year in (("sa1", 2020), ("sa2", 2099), ("sa3", 2099)):
        keys = {"until": f"{year}-01-01T00:00:00Z"}
        session._added(Path("s.yaml"), FarmLine(str(key), "1", board, 22, "t@gw"), keys, False)
    assert {host.name for host in load_inventory(Path("s.yaml")).hosts} == {"sa2", "sa3"}


def test_a_session_that_is_added_meanwhile_stays(key: Path, monkeypatch: Any) -> None:
    def add(board: str) -> None:
        keys = {"until": "2030-01-01T00:00:00Z"}
        session._added(Path("s.yaml"), FarmLine(str(key), "1", board, 22, "t@gw"), keys, False)

    def pinned(_: Path, name: str, **__: object) -> dict[str, str]:
        if name == "sa3":
            raise InputError("the gateway does not answer")
        if name == "sa1":
            add("sa2")
        return {}

    monkeypatch.setattr(session, "_pinned", pinned)
    add("sa1")
    with pytest.raises(InputError):
        add("sa3")
    assert {host.name for host in load_inventory(Path("s.yaml")).hosts} == {"sa1", "sa2"}


def test_only_a_session_that_is_added_removes_the_expired_ones(key: Path, monkeypatch: Any) -> None:
    file = key.with_name("s.yaml")
    old = f'{HEADER}all:\n  hosts:\n    "sa1": {{"until": "2020-01-01T00:00:00Z"}}\n'
    file.write_text(old)
    line = FarmLine(str(key), "1", "sa2.svc", 22, "t@gw")

    def lost(*_: object, **__: object) -> dict[str, str]:
        raise InputError("the gateway does not answer")

    monkeypatch.setattr(session, "_pinned", lost)
    with pytest.raises(InputError):
        session._added(file, line, {"until": "2030-01-01T00:00:00Z"}, False)
    assert file.read_text() == old
    monkeypatch.setattr(session, "_pinned", lambda *_, **__: {})
    session._added(file, line, {"until": "2030-01-01T00:00:00Z"}, False)
    assert [host.name for host in load_inventory(file).hosts] == ["sa2"]


def test_the_hint_of_a_finished_session_is_true(key: Path) -> None:
    """After the end, only the host goes: the farm has the board again."""
    file = key.with_name("s.yaml")
    file.write_text(f'{HEADER}all:\n  hosts:\n    "sa1": {{"until": "2020-01-01T00:00:00Z"}}\n')
    done = fleet("exec", "true", "-i", "s.yaml", cwd=key.parent)
    assert "fleet config session --end sa1 -i s.yaml (removes the host, and" in done.stderr
    done = fleet("config", "session", "--end", "sa1", "-i", "s.yaml", cwd=key.parent)
    assert (done.returncode, file.exists()) == (0, False)
    assert "the farm has the board again" in done.stdout


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    with Lab.up(root, count=0, phones=LabPhones(1, kind="phone-emulator"), base_port=0) as one:
        yield one


@pytest.mark.parametrize("port", [5037, 5555])
def test_a_phone_behind_a_tunnel(
    key: Path, lab: Lab, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The near end of a tunnel is an adb server, or the adbd of the phone: the lab's own here."""
    (phone,) = load_inventory(lab.inventory).hosts
    server, serial = phone.adb_server or "", phone.serial or ""
    monkeypatch.setenv("ADB_SERVER_SOCKET", f"tcp:{server}")
    if port == 5037:
        fleet("config", "phones", "--connect", serial, cwd=key.parent)
    near = (server if port == 5037 else serial).rpartition(":")[2]
    line = f"ssh -i {key} -L {near}:{FAR}:{port} -N t@gw"
    done = fleet("config", "session", line, "-i", "s.yaml", cwd=key.parent)
    assert done.returncode == 0, done.stderr
    (host,) = load_inventory(key.with_name("s.yaml")).hosts
    assert (host.name, host.transport, host.serial) == ("sa775049", "adb", serial)
    assert host.adb_server == (f"127.0.0.1:{near}" if port == 5037 else None)
    (key.with_name("payload")).write_text("x")
    done = fleet("push", "payload", "-i", "s.yaml", cwd=key.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    done = fleet("config", "session", "--end", host.name, "-i", "s.yaml", cwd=key.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not key.with_name("s.yaml").exists()
    done = fleet("exec", "ls -d /data/local/tmp/fleet*", "-i", lab.inventory, cwd=key.parent)
    assert "No such file" in done.stdout + done.stderr


def by_the_hour(seconds: float) -> Host:
    return Host("evk", until=time.time() + CLEAN_SECONDS + seconds)


def test_what_does_not_fit_is_refused_with_its_parts(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "p").write_text("#!/bin/sh\n")
    (tmp_path / "p.yaml").write_text(
        "name: x\nbundle: {path: b, kind: files}\nhealth: {timeout: 60}\n"
        "run: {runner: exec, program: p, timeout: 100, repeats: 3, warmups: 1}\n"
    )
    playbook = load_playbook(tmp_path / "p.yaml")
    item = FileRef(tmp_path / "x", "bundle/x", 1 << 30, "0" * 64)
    manifest = Manifest("x", (item,), origin={"health": {}})
    facts = make_facts()
    idle = DevicePlan(by_the_hour(600), facts, "", manifest, (), ())
    actions = (SendBlobs((Blob(item, 0),)), ProbeHealth(manifest))
    busy = DevicePlan(by_the_hour(600), facts, "", manifest, (), actions)

    def rate() -> float:
        return float(1 << 22)

    assert too_long(Host("evk"), playbook, busy, rate) == ()
    assert too_long(idle.host, playbook, idle, rate) == ()
    (found,) = too_long(busy.host, playbook, busy, rate)  # 256 s, 60 s and 400 s
    assert found.refuses
    assert "may take 11 min (transfer 4 min, test 60 s, runs 6 min)" in found.message
    assert too_long(by_the_hour(900), playbook, busy, rate) == ()


def test_the_budget_of_one_call() -> None:
    assert left(Host("evk")) is None
    assert allowed(Host("evk"), 90) == 90
    assert 90 < allowed(by_the_hour(100), 900) < 100
    require_time(by_the_hour(100))
    with pytest.raises(BudgetError, match="the session of evk is over"):
        require_time(by_the_hour(0))
    assert within(Host("evk"), Deadline(900)).remaining > 800
    assert within(by_the_hour(100), Deadline(900)).remaining <= 100
    with pytest.raises(BudgetError):
        within(by_the_hour(0), Deadline(900))
    Session(by_the_hour(100), print, transport=LocalTransport()).check()
    with pytest.raises(BudgetError):
        Session(by_the_hour(0), print, transport=LocalTransport()).check()
    for deadline in (Deadline(100), Stall(100)):
        deadline.cut(50)
        deadline.touch()
        assert deadline.remaining <= 50


def test_a_command_that_the_end_cuts_leaves_nothing_on_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_LEASE_DIR", str(tmp_path))
    base, cut = tmp_path / "data", DeviceError("the connection was cut", device="evk")
    (base / "store").mkdir(parents=True)
    transport = LocalTransport()
    transport.open(Deadline(60))
    assert judged(replace(by_the_hour(100), base_dir=str(base)), transport, cut) is cut
    assert base.exists()
    ended = judged(replace(by_the_hour(0), base_dir=str(base)), transport, cut)
    assert isinstance(ended, BudgetError)
    assert "the connection was cut" in ended.message
    assert not base.exists()


def test_leases_of_other_users_stay(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives a folder to another user")
    leases = tmp_path / "fleet-lease"
    for name in ("write.1", "write.2"):
        (leases / name).mkdir(parents=True)
    os.chown(leases / "write.2", 65534, 65534)
    env = {**os.environ, "FLEET_LEASE_DIR": str(tmp_path)}
    command = end_command(str(tmp_path / "data"))
    subprocess.run(command.argv, env=env, check=True, capture_output=True, timeout=60)
    assert [path.name for path in leases.iterdir()] == ["write.2"]


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other" / "store").mkdir(parents=True)
    (tmp_path / "data").symlink_to("other")
    env = {**os.environ, "FLEET_LEASE_DIR": str(tmp_path)}
    command = end_command(str(tmp_path / "data"))
    done = subprocess.run(command.argv, env=env, check=False, capture_output=True, timeout=60)
    assert b"is a symbolic link" in done.stdout + done.stderr
    assert (tmp_path / "other" / "store").is_dir()


def test_programs_end_where_the_way_to_the_folder_is_a_link(tmp_path: Path) -> None:
    work = tmp_path / "disk" / "fleet" / "runs"
    work.mkdir(parents=True)
    (tmp_path / "home").symlink_to("disk")
    command = end_command("~/fleet")
    env = {**os.environ, "FLEET_BOARD_HOME": f"{tmp_path}/home", "FLEET_LEASE_DIR": str(tmp_path)}
    with subprocess.Popen(["sleep", "100"], cwd=work) as program:
        try:
            done = subprocess.run(
                command.argv, env=env, check=True, capture_output=True, timeout=60
            )
            assert done.stdout == f"removed {tmp_path}/home/fleet\n".encode()
            assert program.wait(20) == -signal.SIGKILL
        finally:
            program.kill()
    assert not work.parent.exists()


def test_the_end_of_a_session_removes_only_what_fleet_made(tmp_path: Path) -> None:
    base, leases = tmp_path / "data", tmp_path / "fleet-lease"
    for name in ("store", "releases/app", "current", "photos"):
        (base / name).mkdir(parents=True)
    (leases / "write.3").mkdir(parents=True)
    env = {**os.environ, "FLEET_LEASE_DIR": str(tmp_path)}
    subprocess.run(
        end_command(str(base)).argv, env=env, check=True, capture_output=True, timeout=60
    )
    assert [path.name for path in base.iterdir()] == ["photos"]
    assert not leases.exists()
