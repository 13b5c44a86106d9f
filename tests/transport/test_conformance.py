"""What every transport must do. A new transport joins by one line in `transport`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.config.inventory import load_inventory
from fleet.lab import Lab, LabPhones
from fleet.lab.namespace import can_unshare
from fleet.model.command import Command, script
from fleet.model.deadline import Deadline, Stall
from fleet.model.errors import DeadlineError, TransportError, UnreachableError
from fleet.model.inventory import Host
from fleet.transport import transport_for
from fleet.transport.base import Transport
from fleet.transport.control import Commands

from .sshd import running


@contextlib.contextmanager
def a_host(kind: str, folder: Path) -> Iterator[Host]:
    """A device of each kind: this machine, a real sshd, a real adbd, our emulator of adbd."""
    if kind == "local":
        yield Host("here", transport="local")
    elif kind.startswith("ssh"):
        with running(folder) as server:
            yield server.host()
    else:
        if kind == "phone" and (why := can_unshare()):
            pytest.skip(f"no phone with a real adbd here: {why}")
        with Lab.up(folder, count=0, phones=LabPhones(1, kind=kind), base_port=0) as lab:
            yield load_inventory(lab.inventory).hosts[0]


KINDS = [
    "local",
    "ssh",  # one command after another over one channel
    "ssh, a channel each",
    "phone",
    "phone-emulator",
]


@pytest.fixture(scope="module", params=KINDS)
def transport(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transport]:
    folder = tmp_path_factory.mktemp("device")
    with a_host(request.param, folder) as host, pytest.MonkeyPatch.context() as patch:
        if request.param == "ssh, a channel each":
            patch.setattr(Commands, "_kept", lambda *_: False)
        link = transport_for(host)
        link.open(Deadline(10))
        yield link
        link.close()


def test_output_and_status_are_kept_apart(transport: Transport) -> None:
    done = transport.run(script("echo out; echo err >&2; exit 7"), Deadline(10))
    assert (done.status, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert not done.ok


NASTY = [
    "", " ", "a b", "'", '"', "$HOME", "`id`", "$(id)", ";", "&&", "|", "\n", "line\nline", "*",
    "~", "\\", "\\n", "-n", "--", "é", "日本", "!", "!!", "#", "%s", "a'b\"c", "\t", "{a,b}", "[x]",
]  # fmt: skip


def test_arguments_arrive_as_they_are(transport: Transport) -> None:
    argv = ("printf", "%s\\0", *NASTY)
    done = transport.run(Command(argv), Deadline(10))
    assert done.stdout.decode().split("\0")[:-1] == NASTY


@settings(max_examples=25)
@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=6)
)
def test_any_text_arrives_as_it_is(transport: Transport, words: list[str]) -> None:
    done = transport.run(Command(("printf", "%s\\0", "x", *words)), Deadline(10))
    assert done.stdout.decode().split("\0")[1:-1] == words


def test_environment_is_set_and_unset(transport: Transport) -> None:
    probe = 'printf "%s|%s" "$A" "${HOME-gone}"'
    command = Command(("sh", "-c", probe), env={"A": "x'; $(id) y"}, unset=("HOME",))
    assert transport.run(command, Deadline(10)).stdout == b"x'; $(id) y|gone"


def test_folder(transport: Transport) -> None:
    make = 'd=${TMPDIR:-/tmp}; d=$d/conformance-$$; mkdir -p "$d/$1" && cd "$d/$1" && pwd'
    name = "with 'odd' $name"
    folder = transport.run(script(make, name), Deadline(10)).text.strip()
    assert folder.endswith(name)
    assert transport.run(Command(("pwd",), cwd=folder), Deadline(10)).text.strip() == folder
    above = folder.removesuffix(f"/{name}")
    assert transport.run(Command(("rm", "-rf", above)), Deadline(10)).ok


def test_missing_folder_is_status_126(transport: Transport) -> None:
    done = transport.run(Command(("pwd",), cwd="/nowhere/at/all"), Deadline(10))
    assert done.status == 126
    assert "/nowhere/at/all" in done.error_text


def test_missing_program_is_status_127(transport: Transport) -> None:
    assert transport.run(Command(("no-such-program-here",)), Deadline(10)).status == 127


def test_a_signal_is_128_and_its_number(transport: Transport) -> None:
    assert transport.run(script("kill -SEGV $$"), Deadline(10)).status == 128 + 11


def test_binary_round_trip(transport: Transport) -> None:
    blob = bytes(range(256)) * 5000
    done = transport.run(
        Command(("cat",)),
        Deadline(30),
        stdin=(blob[i : i + 9999] for i in range(0, len(blob), 9999)),
    )
    assert done.stdout == blob


def test_output_is_streamed_while_it_runs(transport: Transport) -> None:
    seen: list[bytes] = []
    done = transport.run(
        script("echo one; echo two"), Deadline(10), on_stdout=seen.append, on_stderr=seen.append
    )
    assert b"".join(seen) == b"one\ntwo\n"
    assert done.stdout == b""


def test_a_device_that_does_not_read_ends_nothing(transport: Transport) -> None:
    megabytes = (b"x" * 65536 for _ in range(400))
    assert transport.run(script("exit 3"), Deadline(20), stdin=megabytes).status == 3


def test_deadline(transport: Transport) -> None:
    with pytest.raises(DeadlineError, match="did not end within"):
        transport.run(Command(("sleep", "30")), Deadline(0.5))
    assert transport.run(Command(("true",)), Deadline(10)).ok


def test_stall_is_noticed_and_progress_is_not(transport: Transport) -> None:
    talk = script("for i in 1 2 3 4 5; do echo $i; sleep 0.3; done")
    assert transport.run(talk, Stall(1.2)).ok
    with pytest.raises(DeadlineError):
        transport.run(script("echo a; sleep 30"), Stall(0.6))


def test_error_of_a_source_reaches_the_caller(transport: Transport) -> None:
    def source() -> Iterator[bytes]:
        yield b"first"
        raise UnreachableError("the file changed")

    with pytest.raises(UnreachableError, match="the file changed"):
        transport.run(Command(("cat",)), Deadline(10), stdin=source())


def test_error_of_a_callback_reaches_the_caller(transport: Transport) -> None:
    def broken(_: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transport.run(script("echo x"), Deadline(10), on_stdout=broken)


def test_traffic_is_counted(transport: Transport) -> None:
    before = (
        transport.traffic.round_trips,
        transport.traffic.bytes_sent,
        transport.traffic.bytes_received,
    )
    transport.run(Command(("cat",)), Deadline(10), stdin=[b"12345"])
    after = (
        transport.traffic.round_trips,
        transport.traffic.bytes_sent,
        transport.traffic.bytes_received,
    )
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 5, 5]


def test_identity_is_stable(transport: Transport) -> None:
    assert transport.identity(Deadline(5)) == transport.identity(Deadline(5))


def test_opening_twice_and_closing_twice_do_nothing(transport: Transport) -> None:
    transport.open(Deadline(10))
    assert transport.run(Command(("true",)), Deadline(10)).ok


@pytest.mark.parametrize("kind", ["local", "ssh", "adb"])
def test_nothing_runs_when_it_is_not_open(kind: str) -> None:
    link = transport_for(Host("x", transport=kind, address="127.0.0.1", port=9))
    link.close()
    with pytest.raises(TransportError, match="not open"):
        link.run(Command(("true",)), Deadline(5))
