"""The adb transport: a connection to the adb server for each command, in the phone's shell
protocol.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fleet.model.command import Command, Result, script
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    ConnectionLostError,
    DeadlineError,
    DeviceError,
    FleetError,
    InputError,
    TransportError,
    UnreachableError,
)
from fleet.model.files import Chunk
from fleet.model.inventory import ADB, Host
from fleet.transport.adbserver import (
    AdbDevice,
    AdbServer,
    absent,
    check_state,
    find,
    is_target,
    program,
    rivals,
    translated,
    unanswered,
)
from fleet.transport.adbwire import CLOSE, AdbConnection, Decoder, FrameWriter, keep_warm, send
from fleet.transport.base import Identity, Output, PortStream, Traffic, Transport
from fleet.transport.quote import render
from fleet.transport.streams import Collector, Feeder

_CHUNK = 1 << 18
_SLICE_SECONDS = 0.5  # interval at which a waiting stream checks the deadline
_COMMAND_BYTES = 0xFFFF  # the server's length field has four hexadecimal digits
RETRY_SECONDS = 3.0  # a killed adbd is back after 0.2 s, a phone on Wi-Fi after 2 s
# the server reports a phone as unauthorized until the phone has accepted the key
ACCEPT_SECONDS = 0.5
ALIVE_SECONDS = 5.0  # an answer takes 20 ms; a dead link never answers
# A board with adbd has no properties. Its machine id identifies it.
_SERIAL = "getprop ro.serialno 2>/dev/null || cat /etc/machine-id 2>/dev/null; echo fleet-alive"


class AdbTransport(Transport):
    """A phone, or a board with adbd, behind an adb server.

    `adb` itself waits forever on a silent link; every wait in this class has a deadline.
    """

    name = ADB.name
    second = ""
    system = "posix"

    def __init__(self, host: Host, *, accept_new: bool = False, again: bool = False) -> None:  # noqa: ARG002 - adb has no host keys
        """Prepare a transport that is not open. `again`: the phone was connected a moment ago.
        `accept_new` is ignored.
        """
        self.traffic = Traffic()
        self._host = host
        self._wanted = host.serial or host.address or host.name
        self._server = AdbServer(host.adb_server)
        self._device: AdbDevice | None = None
        self._serialno = ""
        self._tried = False
        self._again = again
        self._links: set[AdbConnection] = set()
        self._lock = threading.Lock()

    @property
    def describe(self) -> str:
        """The phone in the form `adb SERIAL`."""
        return f"adb {self._wanted}"

    @property
    def server(self) -> tuple[str, int]:
        """The host and port of the adb server."""
        return self._server.host, self._server.port

    @property
    def serial(self) -> str:
        """The serial number under which the adb server lists the open phone."""
        return self._live().serial

    def open(self, deadline: Deadline) -> None:
        """Find the phone, check that it is ready and answers, and read its serial number.

        A target HOST:PORT that the server does not have, or that is dead, is connected first. If
        the phone was connected a moment ago, wait for it.
        """
        if self._device is not None:
            return
        patience, pause = Deadline(min(RETRY_SECONDS, deadline.remaining)), threading.Event()
        with self._named():
            while True:
                try:
                    self._find(deadline)
                except (UnreachableError, ConnectionLostError, DeadlineError):
                    target = is_target(self._wanted)
                    if not (target or self._again) or deadline.expired:
                        raise
                    if patience.expired and (self._tried or not target):
                        raise
                    self._tried = True
                    if target:
                        self._server.hang_up(self._wanted, deadline)
                    pause.wait(0.1)
                else:
                    return

    def _find(self, deadline: Deadline) -> None:
        devices = self._server.devices(deadline)
        device = find(devices, self._wanted, self._host.name)
        if device is not None and device.state == "unauthorized" and is_target(self._wanted):
            device = self._settled(deadline)
        elif device is None and is_target(self._wanted):
            answer = self._server.dial(self._wanted, deadline)
            good = answer.startswith(("connected", "already connected"))
            asks = answer.startswith("failed to authenticate")
            device = self._settled(deadline if good or asks else Deadline(ALIVE_SECONDS))
            if device is not None and device.state == "offline" and not good:
                device = None
            if device is None:
                raise unanswered(self._wanted, answer, self._host.name, again=self._again)
        if device is None:
            raise absent(devices, self._wanted, self._host.name, again=self._again)
        check_state(device, self._host.name)
        self._device = device
        try:
            self._alive(deadline)
        except BaseException:
            self._device = None
            raise

    def _settled(self, deadline: Deadline) -> AdbDevice | None:
        """Return the phone's row after `connect`.

        Its state arrives a moment after the server's answer.
        """
        pause, accepting = threading.Event(), Deadline(ACCEPT_SECONDS)
        while True:
            device = find(self._server.devices(deadline), self._wanted, self._host.name)
            passing = device is not None and (
                device.state in {"connecting", "offline", "authorizing"}
                or (device.state == "unauthorized" and not accepting.expired)
            )
            if not passing or deadline.remaining < ALIVE_SECONDS:
                return device
            pause.wait(0.05)

    def _alive(self, deadline: Deadline) -> None:
        """Run one command, and keep the serial number. Raises UnreachableError for a dead shell."""
        limit = Deadline(min(ALIVE_SECONDS, max(deadline.remaining, 0.01)))
        counted = self.traffic
        self.traffic = Traffic()  # not counted, like the handshake of ssh
        try:
            done = self.run(script(_SERIAL), limit)
        finally:
            self.traffic = counted
        lines = done.text.split()
        if "fleet-alive" not in lines:
            raise UnreachableError(
                f"the shell of the phone does not work: {done.error_text or done.text.strip()}",
                hint="restart the phone; then adb shell",
            )
        self._serialno = lines[0] if len(lines) > 1 else ""

    def close(self) -> None:
        """Close all streams. The server's connection to the phone stays, because others
        share it.
        """
        self._device = None
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close()

    def identity(self, deadline: Deadline) -> Identity:
        """Return the serial number of the phone itself, with its USB path."""
        deadline.check("asking for the identity")
        phone = self._live()
        who = self._serialno or phone.serial
        return Identity(self.name, " ".join(filter(None, [who, phone.path])))

    def _live(self) -> AdbDevice:
        if self._device is None:
            raise UnreachableError(
                f"the connection {self.describe} is not open", device=self._host.name
            )
        return self._device

    def run(
        self,
        command: Command,
        deadline: Deadline,
        *,
        stdin: Iterable[Chunk] = (),
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
    ) -> Result:
        """Run a command; see Transport.run.

        At the deadline only the stream is closed, not the phone.
        """
        started = time.monotonic()
        self._live()
        self.traffic.add(round_trips=1)
        out = Collector(self.traffic, on_stdout)
        err = Collector(self.traffic, on_stderr)
        decoder = Decoder(out.take, err.take)
        with self._named(), self._stream(command, deadline) as link:
            link.conn.settimeout(_SLICE_SECONDS)
            if self._server.near:
                keep_warm(link.conn)
            writer = FrameWriter(link.conn, deadline)
            feeder = Feeder(
                self.traffic, stdin, writer, lambda: send(link.conn, [CLOSE], deadline), writer.move
            )
            try:
                self._read(link.conn, decoder, command.argv[0], deadline)
            finally:
                feeder.stop()
        if decoder.status is None:
            raise self._lost(
                f"the connection to the phone broke while '{command.argv[0]}' was running"
            )
        feeder.thread.join(2 * _SLICE_SECONDS)
        for stream in (feeder, out, err):
            stream.check()
        return Result(decoder.status, out.taken, err.taken, time.monotonic() - started)

    def _read(self, link: socket.socket, decoder: Decoder, what: str, deadline: Deadline) -> None:
        while decoder.status is None:
            try:
                chunk = link.recv(_CHUNK)
            except TimeoutError:
                chunk = None
            except OSError:
                return
            if chunk == b"":
                return
            if chunk:
                deadline.touch()
                decoder.take(chunk)
            elif deadline.expired:
                raise DeadlineError(
                    f"the program '{what}' on the phone did not end within {deadline.waited} s"
                )

    @contextlib.contextmanager
    def _stream(self, command: Command, deadline: Deadline) -> Iterator[AdbConnection]:
        """Yield a stream to a shell that runs the command. Raises InputError for a long command."""
        line = f"shell,v2,raw:{render(command, bare=True)}"
        if len(line.encode()) > _COMMAND_BYTES:
            raise InputError(
                f"a command of {len(line.encode())} bytes is too long for adb "
                f"(at most {_COMMAND_BYTES})",
                hint="use shorter paths or arguments, or put long texts into files",
            )
        link = self._service(line, deadline)
        try:
            yield link
        finally:
            self._drop(link)

    def _service(self, line: str, deadline: Deadline) -> AdbConnection:
        """Open a stream to a service of the phone, by name. `_drop` closes it."""
        phone, link = self._live(), self._server.connect(deadline)
        with self._lock:
            self._links.add(link)
        try:
            with translated(self._server, deadline, self._wanted):
                by_id = f"host:transport-id:{phone.transport}"
                link.ask(by_id if phone.transport else f"host:transport:{phone.serial}")
                self._okay(link, deadline)
                send(link.conn, [b"%04x" % len(line.encode()), line.encode()], deadline)
                self._okay(link, deadline)
        except BaseException:
            self._drop(link)
            raise
        return link

    def _drop(self, link: AdbConnection) -> None:
        with self._lock:
            self._links.discard(link)
        link.close()

    def terminal(self, folder: Path, command: str = "") -> list[str]:  # noqa: ARG002 - interface
        """Return the argv of `adb shell`; nothing is written to `folder`."""
        server = ("-H", self._server.host, "-P", str(self._server.port))
        more = ("-t", command) if command else ()
        return [program(), *server, "-s", self._live().serial, "shell", *more]

    def dial(self, port: int, deadline: Deadline) -> PortStream:
        """Connect to a port of the phone with the service `tcp:PORT`, like `adb forward`.

        Raises DeviceError if nothing listens there.
        """
        with self._named():
            try:
                link = self._service(f"tcp:{port}", deadline)
            except ConnectionLostError as error:
                if not error.message.startswith("adb lost"):
                    raise
                raise DeviceError(
                    f"no program on the device answers at port {port}",
                    hint="fleet serve start; or, if the service was started: fleet serve logs",
                ) from error
        with self._lock:
            self._links.discard(link)
        link.conn.settimeout(None)
        return link.conn

    def _okay(self, link: AdbConnection, deadline: Deadline) -> None:
        """Read OKAY. Raises ConnectionLostError or UnreachableError with the server's reason."""
        link.conn.settimeout(max(deadline.remaining, 0.01))
        answer = link.read(4)
        if answer == b"OKAY":
            return
        if answer != b"FAIL":
            raise self._lost("the adb server closed the connection")
        why = " ".join(link.block().split())
        if why == "closed" and self._lacks_shell():
            raise _no_shell(why)
        if "not found" in why or "offline" in why or why == "closed":
            raise self._lost(f"adb lost the connection to the phone ({why})")
        raise UnreachableError(
            f"the adb server refuses the connection to the phone: {why}", hint="adb devices -l"
        )

    def _lacks_shell(self) -> bool:
        """Return True only if the server lists this phone's features and shell_v2 is missing."""
        phone = self._live()
        by_id = f"host-transport-id:{phone.transport}:features"
        try:
            features = self._server.ask(
                by_id if phone.transport else f"host-serial:{phone.serial}:features", Deadline(2.0)
            )
        except FleetError:
            return False
        return "shell_v2" not in features.split(",")

    def _lost(self, text: str) -> TransportError:
        """Return a ConnectionLostError. Its text says if another adb has ended the server."""
        hint = ""
        try:
            self._server.version(Deadline(1.0))
        except FleetError:
            others = ", ".join(rivals())
            text += f"; the adb server at {self._server} has ended"
            hint = (
                "remove all versions of adb except one, because each version stops the server "
                "of the others: which -a adb"
            )
            hint += f" ({others})" if others else ""
        return ConnectionLostError(text, device=self._host.name, hint=hint)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except FleetError as error:
            error.device = error.device or self._host.name
            raise


def _no_shell(why: str) -> DeviceError:
    return DeviceError(
        "the adbd of the phone is too old: it does not report exit codes (feature shell_v2): "
        f"{why}",
        hint="update the phone to Android 7 or newer; on a board: update adbd, or use ssh",
    )
