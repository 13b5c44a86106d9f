"""A device that is not reached has a diagnosis too: which link of the way is broken."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import fleet
from fleet.doctor.examine import Round, examine, link_check
from fleet.model.deadline import Deadline
from fleet.model.diagnosis import UNCHECKED, Diagnosis
from fleet.model.errors import (
    AuthError,
    DeadlineError,
    DeviceError,
    FleetError,
    HostKeyError,
    TransportError,
    UnreachableError,
)
from fleet.model.inventory import Host
from fleet.transport.adbserver import AdbDevice, AdbServer, absent, check_state
from tests.transport.sshd import free_port, make_key, running

from .conftest import ids


def look(host: Host) -> Diagnosis:
    (found,) = examine([host], lambda _: None, Round())
    return found


def test_a_closed_port(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        host = server.host(port=free_port())
    found = look(host)
    assert found.verdict == UNCHECKED
    assert ids(found)[0] == "device-unreachable"
    assert found.error is not None
    assert found.checks[0].layer == "link"


def test_a_silent_address(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        with running(tmp_path) as server:
            host = server.host(port=silent.getsockname()[1], connect_timeout=0.5)
        found = look(host)
    assert found.verdict == UNCHECKED
    assert ids(found)[0] == "device-unreachable"


def test_a_changed_host_key(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        known = tmp_path / "known_hosts_old"
        other = make_key(tmp_path / "other").with_suffix(".pub").read_text("utf-8").split()
        known.write_text(f"[127.0.0.1]:{server.port} {other[0]} {other[1]}\n")
        found = look(server.host(known_hosts=known))
    assert ids(found)[0] == "host-key"
    assert found.verdict == UNCHECKED


def test_a_key_that_is_not_accepted(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        found = look(server.host(identity_files=(make_key(tmp_path / "stranger"),)))
    assert ids(found)[0] == "ssh-auth"


def test_a_login_without_any_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with running(tmp_path / "d") as server:
        found = look(server.host(identity_files=()))
    assert ids(found)[0] == "ssh-auth"
    assert "device-unreachable" not in ids(found)


def test_one_dead_board_does_not_hide_the_others(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        alive = server.host()
        dead = server.host(name="dead", port=free_port())
        found = examine([dead, alive], lambda _: None, Round(session=False))
    assert [one.target for one in found] == ["dead", alive.name]
    assert found[0].verdict == UNCHECKED
    assert not any(check.status == "ok" for check in found[0].checks)
    reached = next(check for check in found[1].checks if check.id == "host")
    assert reached.status == "ok"  # what else is missing depends on this computer


PHONE = Host("phone", transport="adb", serial="R5CX10ABCDE")


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("unauthorized", "adb-unauthorized"),
        ("no permissions", "adb-no-permissions"),
        ("offline", "adb-offline"),
        ("sideload", "unreachable"),
    ],
)
def test_each_state_of_a_phone_has_its_word(state: str, word: str) -> None:
    with pytest.raises(TransportError) as caught:
        check_state(AdbDevice("R5CX10ABCDE", state), "phone")
    assert link_check(PHONE, caught.value).facts == {"link": word}


def test_a_phone_that_is_absent_is_not_what_another_one_is() -> None:
    other = AdbDevice("R3", "offline")
    found = absent([other], "R5CX10ABCDE", "phone")
    assert link_check(PHONE, found).facts == {"link": "unreachable"}


def test_without_a_server_adb_is_missing() -> None:
    with pytest.raises(TransportError) as caught:
        AdbServer(f"127.0.0.1:{free_port()}").connect(Deadline(5))
    assert link_check(PHONE, caught.value).facts == {"link": "adb-missing"}


@pytest.mark.parametrize(
    ("host", "error", "word"),
    [
        (Host("evk"), HostKeyError("changed"), "host-key"),
        (Host("evk"), AuthError("refused"), "auth"),
        (Host("evk"), DeadlineError("late"), "timeout"),
        (Host("evk"), UnreachableError("no route"), "unreachable"),
    ],
)  # fmt: skip
def test_each_error_has_its_word(host: Host, error: FleetError, word: str) -> None:
    check = link_check(host, error)
    assert check.facts == {"link": word}
    assert check.status == "bad"


def test_what_is_no_matter_of_the_link_is_unknown() -> None:
    check = link_check(Host("evk"), DeviceError("the answer was cut", hint="fish?"))
    assert (check.status, check.facts) == ("unknown", {})
    assert "fish?" in check.output


def test_the_python_api(tmp_path: Path) -> None:
    inventory = tmp_path / "i.yaml"
    inventory.write_text(f"all:\n  hosts:\n    evk: {{host: 127.0.0.1, port: {free_port()}}}\n")
    (found,) = fleet.diagnose(inventory)
    assert found.verdict == UNCHECKED
    assert fleet.diagnose_log("Exec format error", platform="linux").causes[0].cause.id == (
        "abi-mismatch"
    )
