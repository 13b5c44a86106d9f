"""adb beyond the conformance suite: states and their cure, which phone is meant, lost links."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.inventory import load_inventory
from fleet.lab import Lab, LabPhones
from fleet.model.command import Command, script
from fleet.model.deadline import Deadline, Stall
from fleet.model.errors import (
    AuthError,
    ConnectionLostError,
    DeadlineError,
    DeviceError,
    IdentityError,
    InputError,
    TransportError,
    UnreachableError,
)
from fleet.model.extras import install_extra
from fleet.model.files import Span
from fleet.model.inventory import Host
from fleet.transport import transport_for
from fleet.transport.adb import _SERIAL, AdbTransport
from fleet.transport.adbserver import (
    AdbDevice,
    AdbServer,
    address,
    check_state,
    find,
    is_target,
    parse_row,
    program,
    rivals,
)
from fleet.transport.adbwire import FRAME_BYTES, Decoder

ROWS = {
    "8A1X\tdevice": AdbDevice("8A1X", "device"),
    "8A1X                   device usb:1-4.2 product:p model:Pixel_9 device:d transport_id:3": (
        AdbDevice("8A1X", "device", "usb:1-4.2", "Pixel_9", 3)
    ),
    "10.0.0.5:5555          offline transport_id:12": AdbDevice(
        "10.0.0.5:5555", "offline", transport=12
    ),
    "????????????           no permissions (user in plugdev group; are your udev rules wrong?); "
    "see [http://developer.android.com/tools/device.html] usb:3-1 transport_id:2": AdbDevice(
        "????????????",
        "no permissions",
        "usb:3-1",
        transport=2,
        why="user in plugdev group; are your udev rules wrong?",
    ),
    "R5C\tunauthorized usb:1-2 transport_id:x": AdbDevice("R5C", "unauthorized", "usb:1-2"),
}


@pytest.mark.parametrize("line", ROWS)
def test_rows_of_devices(line: str) -> None:
    assert parse_row(line) == ROWS[line]


@given(st.text(max_size=200))
def test_any_row_is_read(line: str) -> None:
    assert isinstance(parse_row(line), AdbDevice)


@pytest.mark.parametrize(
    ("state", "kind", "cure"),
    [
        ("unauthorized", AuthError, "Allow USB debugging"),
        ("offline", UnreachableError, "plug it in again"),
        ("no permissions", AuthError, "plugdev"),
        ("recovery", UnreachableError, "adb reboot"),
        ("sideload", UnreachableError, "adb reboot"),
        ("bootloader", UnreachableError, "fastboot reboot"),
        ("something new", UnreachableError, "adb devices -l"),
    ],
)
def test_every_state_has_its_error_and_its_cure(
    state: str, kind: type[TransportError], cure: str
) -> None:
    with pytest.raises(kind) as caught:
        check_state(AdbDevice("8A1X", state), "s24")
    assert f"8A1X as '{state}'" in str(caught.value)
    assert cure in caught.value.hint


def test_two_devices_with_one_serial_are_refused() -> None:
    twins = [
        AdbDevice("0123456789ABCDEF", "device", "usb:1-6", transport=3),
        AdbDevice("0123456789ABCDEF", "device", "usb:1-7", transport=4),
    ]
    with pytest.raises(IdentityError, match="usb:1-6, usb:1-7") as caught:
        find(twins, "0123456789ABCDEF", "bench")
    assert "serial: usb:1-6" in caught.value.hint
    assert find(twins, "usb:1-7", "bench") == twins[1]
    assert find(twins, "other", "bench") is None


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "6000")
    assert address() == ("127.0.0.1", 6000)
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:10.0.0.9:5038")
    assert address() == ("10.0.0.9", 5038)
    assert address("127.0.0.1:7000") == ("127.0.0.1", 7000)
    with pytest.raises(InputError, match="is not the address of an adb server"):
        address("nonsense")
    assert is_target("10.0.0.5:5555")
    assert not is_target("usb:1")
    assert not is_target("R5CX10ABCDE")


def test_two_adb_programs_of_different_version_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("one", 41), ("two", 39)):
        program = tmp_path / name / "adb"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho Android Debug Bridge version 1.0.{version}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}/one:{tmp_path}/two:/usr/bin:/bin")
    found = rivals()
    assert f"{tmp_path}/one/adb (41)" in found
    assert f"{tmp_path}/two/adb (39)" in found


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(1, 17))
def test_frames_in_any_pieces(bodies: list[bytes], step: int) -> None:
    data = b"".join(
        bytes([1 + n % 2]) + len(body).to_bytes(4, "little") + body for n, body in enumerate(bodies)
    )
    data += b"\x03\x01\x00\x00\x00\x07"
    out, err = bytearray(), bytearray()
    decoder = Decoder(out.extend, err.extend)
    for at in range(0, len(data), step):
        decoder.take(data[at : at + step])
    assert bytes(out) == b"".join(bodies[::2])
    assert bytes(err) == b"".join(bodies[1::2])
    assert decoder.status == 7


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    with Lab.up(root, count=0, phones=LabPhones(2, kind="phone-emulator"), base_port=0) as one:
        yield one


def host(lab: Lab, number: int = 0) -> Host:
    return load_inventory(lab.inventory).hosts[number]


@contextlib.contextmanager
def fault(lab: Lab, name: str, what: str) -> Iterator[None]:
    """A fault on a phone that the server has to meet anew."""
    lab.fault(name, what)
    server = AdbServer(lab.adb_server)
    server.hang_up(lab.board(name).serial, Deadline(5))
    try:
        yield
    finally:
        lab.heal(name, what)
        server.hang_up(lab.board(name).serial, Deadline(5))


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("unauthorized", AuthError, "not yet allowed this workstation"),
        ("recovery", UnreachableError, "in recovery"),
        ("old-features", DeviceError, "shell_v2"),
        ("offline", UnreachableError, "adb cannot connect"),
    ],
)
def test_states_of_a_real_server(lab: Lab, what: str, kind: type[Exception], words: str) -> None:
    with fault(lab, "phone002", what):
        link = transport_for(host(lab, 1))
        with pytest.raises(kind, match=words) as caught:
            link.open(Deadline(12))
        assert getattr(caught.value, "device", "") == "phone002"
        assert getattr(caught.value, "hint", "")


def test_a_first_pairing_is_one_connection(lab: Lab) -> None:
    with fault(lab, "phone002", "asks"):
        link = transport_for(host(lab, 1))
        link.open(Deadline(12))
        assert link.run(Command(("true",)), Deadline(5)).ok
        link.close()


def test_the_identity_is_the_phone_s_own_serial_number(lab: Lab) -> None:
    link = transport_for(host(lab))
    link.open(Deadline(10))
    who = link.identity(Deadline(1))
    assert (who.kind, who.value) == ("adb", "PHONE001")
    assert link.traffic.round_trips == 0, "the look at the opening is not the work's"
    link.close()


def test_a_link_that_breaks_is_lost_and_comes_back_by_reopening(lab: Lab) -> None:
    link = transport_for(host(lab))
    link.open(Deadline(10))
    seen: list[bytes] = []

    def first(chunk: bytes) -> None:
        if not seen:
            threading.Thread(target=lab.fault, args=("phone001", "cut"), daemon=True).start()
        seen.append(chunk)

    with pytest.raises(ConnectionLostError, match="broke while"):
        link.run(script("echo here; sleep 30"), Deadline(25), on_stdout=first)
    assert b"".join(seen) == b"here\n"
    link.close()
    again = transport_for(host(lab))
    again.open(Deadline(15))
    assert again.run(Command(("echo", "back")), Deadline(5)).text == "back\n"
    again.close()


def test_a_phone_that_went_silent_ends_by_our_own_clock(lab: Lab) -> None:
    """adb itself would wait for ever, and still lists the phone as `device`."""
    link = transport_for(host(lab))
    link.open(Deadline(10))
    lab.fault("phone001", "blackhole")
    try:
        with pytest.raises(DeadlineError):
            link.run(
                script("cat >/dev/null"), Stall(1.5), stdin=(bytes(1 << 20) for _ in range(64))
            )
        with pytest.raises(TransportError):
            transport_for(host(lab)).open(Deadline(7))
    finally:
        lab.heal("phone001", "blackhole")
    again = transport_for(host(lab))
    again.open(Deadline(15))
    assert again.run(Command(("true",)), Deadline(5)).ok
    again.close()
    link.close()


def test_a_server_that_is_not_there_is_not_started_where_one_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    lost = Host("s24", transport="adb", serial="R5C", adb_server=f"127.0.0.1:{port}")
    with pytest.raises(UnreachableError, match="no adb server answers") as caught:
        transport_for(lost).open(Deadline(3))
    assert "adb_server" in caught.value.hint


def test_a_computer_without_adb_is_one_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also at `fleet shell`, whose terminal is the program adb itself."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "adbutils", None)
    with pytest.raises(InputError, match="there is no adb on the PATH") as caught:
        program()
    assert caught.value.hint.startswith("sudo apt-get install adb (or ")
    assert install_extra("adb") in caught.value.hint
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setenv("ADB_SERVER_SOCKET", f"tcp:127.0.0.1:{port}")
    with pytest.raises(UnreachableError, match="there is no adb on the PATH"):
        AdbServer().connect(Deadline(3))


def test_a_phone_that_adb_does_not_see(lab: Lab) -> None:
    absent = Host("s24", transport="adb", serial="R5CX", adb_server=lab.adb_server)
    with pytest.raises(
        UnreachableError, match="adb does not see the phone R5CX; adb sees"
    ) as caught:
        transport_for(absent).open(Deadline(5))
    assert "adb devices -l" in caught.value.hint


Speaker = Callable[[socket.socket], None]


@contextlib.contextmanager
def server_that(speaks: Speaker) -> Iterator[str]:
    """A server of our own, for answers that a real one gives rarely."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer:
                    speaks(peer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def test_usb_without_permissions_names_the_cure() -> None:
    rows = b"????????????  no permissions (missing udev rules?); see [x] usb:1-4 transport_id:1\n"

    def speaks(peer: socket.socket) -> None:
        if peer.recv(200):
            peer.sendall(b"OKAY%04x" % len(rows) + rows)

    with server_that(speaks) as where:
        lost = Host("s24", transport="adb", serial="R5C", adb_server=where)
        with pytest.raises(UnreachableError, match="no permissions") as caught:
            transport_for(lost).open(Deadline(3))
        assert "plugdev" in caught.value.hint
        by_path = Host("s24", transport="adb", serial="usb:1-4", adb_server=where)
        with pytest.raises(AuthError, match="missing udev rules"):
            transport_for(by_path).open(Deadline(3))


@pytest.mark.parametrize(
    "answer", [b"", b"OK", b"FAIL", b"FAIL0004", b"OKAYzzzz", b"OKAY0010abc", b"\xff" * 64]
)
def test_a_server_that_speaks_nonsense_is_one_error(answer: bytes) -> None:
    def speaks(peer: socket.socket) -> None:
        if peer.recv(200):
            peer.sendall(answer)

    with server_that(speaks) as where, pytest.raises(TransportError):
        transport_for(Host("s24", transport="adb", serial="R5C", adb_server=where)).open(
            Deadline(3)
        )


def test_pairing_sends_the_code_and_nothing_else() -> None:
    heard: list[bytes] = []

    def speaks(peer: socket.socket) -> None:
        said = peer.recv(200)
        if said:
            heard.append(said)
            words = b"Successfully paired to 10.0.0.21:37123 [guid=adb-X]"
            peer.sendall(b"OKAY%04x" % len(words) + words)

    with server_that(speaks) as where:
        said = AdbServer(where).pair("10.0.0.21:37123", "123456", Deadline(3))
        with pytest.raises(InputError, match="six digits"):
            AdbServer(where).pair("10.0.0.21:37123", "12 34", Deadline(3))
    assert said.startswith("Successfully paired")
    assert heard == [b"0020host:pair:123456:10.0.0.21:37123"]


def test_a_command_that_is_too_long_says_so(lab: Lab) -> None:
    link = transport_for(host(lab))
    link.open(Deadline(10))
    with pytest.raises(InputError, match="too long for adb"):
        link.run(Command(("true", "x" * 70_000)), Deadline(5))
    link.close()


def test_closing_ends_what_waits(lab: Lab) -> None:
    link = transport_for(host(lab))
    assert isinstance(link, AdbTransport)
    link.open(Deadline(10))
    ended: list[Exception] = []

    def wait() -> None:
        try:
            link.run(script("sleep 30"), Deadline(25))
        except TransportError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    deadline = Deadline(5)
    while not link._links and not deadline.expired:
        waiting.join(0.01)
    link.close()
    waiting.join(10)
    assert ended
    assert not waiting.is_alive()


@contextlib.contextmanager
def connected(lab: Lab) -> Iterator[AdbTransport]:
    link = AdbTransport(host(lab))
    link.open(Deadline(10))
    try:
        yield link
    finally:
        link.close()


def spans(path: Path, *edges: int) -> Iterator[Span]:
    for start, end in itertools.pairwise(edges):
        yield Span(path, start, end, lambda: pytest.fail("read a second time"))


def test_a_file_arrives_by_its_spans(lab: Lab, tmp_path: Path) -> None:
    data = os.urandom(3 * FRAME_BYTES + 5)
    source = tmp_path / "source"
    source.write_bytes(data)
    with connected(lab) as phone:
        edges = (0, 1, FRAME_BYTES + 1, FRAME_BYTES + 1, len(data))
        before = phone.traffic.bytes_sent
        done = phone.run(script("sha256sum"), Stall(10), stdin=spans(source, *edges))
    assert done.text.split()[0] == hashlib.sha256(data).hexdigest()
    assert phone.traffic.bytes_sent - before == len(data)


@pytest.mark.parametrize("left", [FRAME_BYTES + 7, None])
def test_a_file_that_changes_while_it_is_sent_is_an_error(
    lab: Lab, tmp_path: Path, left: int | None
) -> None:
    source = tmp_path / "source"
    if left is not None:
        source.write_bytes(bytes(left))
    with (
        connected(lab) as phone,
        pytest.raises(InputError, match="was modified while fleet sent it"),
    ):
        phone.run(script("cat > /dev/null"), Stall(10), stdin=spans(source, 0, 2 * FRAME_BYTES))


@pytest.mark.slow
def test_more_than_four_gigabytes_arrive_in_size(lab: Lab, tmp_path: Path) -> None:
    """Sizes beyond 32 bits: a sparse source, counted on the device."""
    link = transport_for(host(lab))
    link.open(Deadline(10))
    chunk, count = bytes(1 << 22), 1025
    counting = script("dd bs=4194304 iflag=fullblock 2>/dev/null | wc -c")
    done = link.run(counting, Stall(30), stdin=(chunk for _ in range(count)))
    assert int(done.text) == len(chunk) * count > 1 << 32
    assert os.environ.get("HOME")
    link.close()


def test_no_code_of_ours_ends_a_server() -> None:
    """`adb kill-server` would take the phones of everybody else on this workstation."""
    package = Path(__file__).parents[2] / "fleet"
    for path in package.rglob("*.py"):
        text = path.read_text("utf-8")
        assert "host:kill" not in text, path
        assert "kill-server" not in text, path
        assert "server_kill" not in text, path


@pytest.mark.parametrize("has_properties", [True, False])
def test_a_board_behind_adb_is_told_by_its_machine_id(tmp_path: Path, has_properties: bool) -> None:
    if has_properties:
        (tmp_path / "getprop").write_text("#!/bin/sh\necho R5C\n")
        (tmp_path / "getprop").chmod(0o755)
    shell = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", _SERIAL], capture_output=True, text=True, check=True, env=shell, timeout=10
    )
    machine = Path("/etc/machine-id")
    own = machine.read_text("utf-8").split() if machine.exists() else []
    assert done.stdout.split() == [*(["R5C"] if has_properties else own), "fleet-alive"]


@pytest.mark.parametrize(
    ("features", "kind"),
    [("shell_v2,cmd,stat_v2", ConnectionLostError), ("cmd,stat_v2", DeviceError)],
)
def test_a_stream_that_is_refused_is_a_cut_or_an_old_adbd(
    features: str, kind: type[Exception]
) -> None:
    """Both answer `closed`; the features that the server knows tell them apart."""
    row = b"R5C device usb:1-4 transport_id:1\n"

    def speaks(peer: socket.socket) -> None:
        said = peer.recv(4000)
        if b"devices-l" in said:
            peer.sendall(b"OKAY%04x" % len(row) + row)
        elif b"features" in said:
            peer.sendall(b"OKAY%04x" % len(features) + features.encode())
        elif b"transport-id" in said:
            peer.sendall(b"OKAY")
            peer.recv(4000)
            peer.sendall(b"FAIL0006closed")
        elif b"version" in said:
            peer.sendall(b"OKAY00040029")

    with server_that(speaks) as where:
        link = transport_for(Host("s24", transport="adb", serial="R5C", adb_server=where))
        with pytest.raises(kind):
            link.open(Deadline(3))
