"""The Windows side of the ssh transport, through a real sshd. Emulated: see standin.py."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_SUCCESSFUL

from fleet.model.command import Call, Command, script
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, DeviceError, InputError
from fleet.model.inventory import Host
from fleet.transport import transport_for
from fleet.transport.base import Transport

from .pc import a_pc
from .test_quoting import HOSTILE

ECHO = "import sys; sys.stdout.buffer.write(b'\\0'.join(a.encode() for a in sys.argv[1:]))"


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    with a_pc(tmp_path_factory.mktemp("pc")) as pc:
        found = transport_for(pc.host())
        found.open(Deadline(10))
        yield found
        found.close()


def test_it_is_windows_without_a_second_carrier(link: Transport) -> None:
    assert (link.system, link.second) == ("windows", "")


def test_arguments_arrive_as_they_are(link: Transport) -> None:
    done = link.run(Command((sys.executable, "-c", ECHO, *HOSTILE)), Deadline(20))
    assert done.stdout.decode().split("\0") == HOSTILE


def test_environment_folder_status_and_streams(link: Transport, tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.getcwd(), os.environ['A'], os.environ.get('HOME')); "
        "sys.stderr.write('err'); sys.exit(7)"
    )
    folder = tmp_path / "with 'odd' $name"
    folder.mkdir()
    command = Command(
        (sys.executable, "-c", code), env={"A": "%A% $x"}, cwd=str(folder), unset=("HOME",)
    )
    done = link.run(command, Deadline(20))
    assert (done.status, done.stderr) == (7, b"err")
    assert done.text == f"{folder} %A% $x None\n"


def test_standard_input_is_binary_and_whole(link: Transport) -> None:
    blob = bytes(range(256)) * 5000
    code = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    pieces = (blob[i : i + 9999] for i in range(0, len(blob), 9999))
    done = link.run(Command((sys.executable, "-c", code)), Deadline(30), stdin=pieces)
    assert done.stdout == blob


def test_a_missing_folder_is_126_and_a_missing_program_127(link: Transport) -> None:
    done = link.run(Command(("x.exe",), cwd="/nowhere/at/all"), Deadline(10))
    assert (done.status, "/nowhere/at/all" in done.error_text) == (126, True)
    assert link.run(Command(("no-such-program.exe",)), Deadline(10)).status == 127


def test_deadline(link: Transport) -> None:
    with pytest.raises(DeadlineError, match="did not end within"):
        link.run(Command((sys.executable, "-c", "import time; time.sleep(30)")), Deadline(1.0))


def test_a_work_by_name_runs_and_a_shell_script_does_not(link: Transport) -> None:
    done = link.run(Command(("unused",), call=Call("boot_id")), Deadline(20))
    assert done.text == Path("/proc/sys/kernel/random/boot_id").read_text()
    with pytest.raises(InputError, match="on a Windows device"):
        link.run(script("echo"), Deadline(10))
    done = link.run(Command(("unused",), call=Call("nonsense")), Deadline(20))
    assert (done.status, "on Windows" in done.error_text) == (70, True)


def test_a_login_shell_that_takes_standard_input_is_named(tmp_path: Path) -> None:
    with a_pc(tmp_path, "--shell", "powershell") as pc:
        link = transport_for(pc.host())
        link.open(Deadline(10))
        with pytest.raises(DeviceError, match=r"powershell\.exe") as caught:
            link.run(Command(("x.exe",)), Deadline(10))
        link.close()
    assert "Remove-ItemProperty" in caught.value.hint


def test_no_python_is_named(tmp_path: Path) -> None:
    with a_pc(tmp_path, "--no-python") as pc:
        link = transport_for(pc.host())
        link.open(Deadline(10))
        with pytest.raises(DeviceError, match="no Python") as caught:
            link.run(Command(("unused",), call=Call("boot_id")), Deadline(10))
        link.close()
    assert "winget" in caught.value.hint


@pytest.mark.parametrize(
    ("banner", "os", "system"),
    [
        ("SSH-2.0-OpenSSH_for_Windows_9.5", None, "windows"),
        ("SSH-2.0-OpenSSH_for_Windows_9.5", "linux", "posix"),
        ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13", None, "posix"),
    ],
)
def test_the_banner_tells(tmp_path: Path, banner: str, os: str | None, system: str) -> None:
    """A server of paramiko's on loopback, with the banner that Windows' own has."""

    class Anybody(paramiko.ServerInterface):
        def check_auth_none(self, username: str) -> int:
            return AUTH_SUCCESSFUL

        def check_auth_publickey(self, username: str, key: object) -> int:
            return AUTH_SUCCESSFUL

        def get_allowed_auths(self, username: str) -> str:
            return "publickey"

    key = paramiko.RSAKey.generate(2048)
    mine = tmp_path / "id"
    paramiko.RSAKey.generate(2048).write_private_key_file(str(mine))
    with socket.create_server(("127.0.0.1", 0)) as server:
        served: list[paramiko.Transport] = []

        def serve() -> None:
            peer = paramiko.Transport(server.accept()[0])
            served.append(peer)
            peer.local_version = banner
            peer.add_server_key(key)
            peer.start_server(threading.Event(), server=Anybody())

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        host = Host(
            "pc",
            address="127.0.0.1",
            port=port,
            user="u",
            identity_files=(mine,),
            known_hosts=known,
            os=os,
        )
        link = transport_for(host)
        link.open(Deadline(10))
        assert link.system == system
        link.close()
        thread.join()
        for peer in served:
            peer.close()
