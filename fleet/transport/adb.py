"""adb: one connection to the adb server for each command, over the phone's shell protocol."""

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
from fleet.transport.adbserver import AdbDevice, AdbServer, program, rivals, translated
from fleet.transport.adbstates import absent, check_state, find, is_target, unanswered
from fleet.transport.adbwire import CLOSE, AdbConnection, Decoder, FrameWriter, keep_warm, send
from fleet.transport.base import Carrier, Identity, Output, PortStream, Traffic
from fleet.transport.quote import render
from fleet.transport.streams import Collector, Feeder

_CHUNK = 1 << 18
_SLICE_SECONDS = 0.5  # how often a waiting stream looks at the deadline
_COMMAND_BYTES = 0xFFFF  # the server's length field has four hexadecimal digits
RETRY_SECONDS = 3.0  # an adbd that was killed is back after 0.2 s, a phone on Wi-Fi after 2 s
ACCEPT_SECONDS = 0.5  # until a phone has taken the key the server calls it unauthorized
ALIVE_SECONDS = 5.0  # an answer takes 20 ms; a dead link never gives one
# A board with adbd has no properties; its machine id tells it from the next one.
_SERIAL = "getprop ro.serialno 2>/dev/null || cat /etc/machine-id 2>/dev/null; echo fleet-alive"


class AdbTransport:
    """A phone, or a board with adbd, behind an adb server.

    `adb` itself never gives up on a link that went silent; every wait here has a deadline.
    """

    name = ADB.name
    second = ""
    system = "posix"

    def __init__(self, host: Host, *, accept_new: bool = False, again: bool = False) -> None:  # noqa: ARG002 - adb has no host keys
        """`again`: it was there a moment ago."""
        self.traffic = Traffic()
        self._host = host
        self._wanted = host.serial or host.address or host.name
        self._server = AdbServer(host.adb_server)
        self._seen: AdbDevice | None = None
        self._serialno = ""
        self._tried = False
        self._again = again
        self._links: set[AdbConnection] = set()
        self._lock = threading.Lock()

    @property
    def describe(self) -> str:
        """`adb SERIAL`."""
        return f"adb {self._wanted}"

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of the adb server."""
        return self._server.host, self._server.port

    @property
    def serial(self) -> str:
        """The serial number by which the adb server knows the open phone."""
        return self._live().serial

    def carrier(self, deadline: Deadline) -> Carrier:  # noqa: ARG002 - the interface of transports
        """There is none but this."""
        raise UnreachableError(
            "a phone can only be reached with adb",
            device=self._host.name,
        )

    def trial(self) -> Carrier:
        """See Carrier.trial."""
        return self

    def open(self, deadline: Deadline) -> None:
        """Find the phone, check that it is ready and answers, and learn its serial number.

        A target HOST:PORT that the server does not have, or that is dead, is connected. A phone
        that was there a moment ago is waited for.
        """
        if self._seen is not None:
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
        seen = self._server.devices(deadline)
        device = find(seen, self._wanted, self._host.name)
        if device is not None and device.state == "unauthorized" and is_target(self._wanted):
            device = self._settled(deadline)
        elif device is None and is_target(self._wanted):
            said = self._server.dial(self._wanted, deadline)
            good = said.startswith(("connected", "already connected"))
            asks = said.startswith("failed to authenticate")
            device = self._settled(deadline if good or asks else Deadline(ALIVE_SECONDS))
            if device is not None and device.state == "offline" and not good:
                device = None
            if device is None:
                raise unanswered(self._wanted, said, self._host.name, again=self._again)
        if device is None:
            raise absent(seen, self._wanted, self._host.name, again=self._again)
        check_state(device, self._host.name)
        self._seen = device
        try:
            self._alive(deadline)
        except BaseException:
            self._seen = None
            raise

    def _settled(self, deadline: Deadline) -> AdbDevice | None:
        """The row after `connect`: the state comes a moment later than the answer."""
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
        """One command: a link that is dead is found here, and the serial number is learnt."""
        limit = Deadline(min(ALIVE_SECONDS, max(deadline.remaining, 0.01)))
        counted = self.traffic
        self.traffic = Traffic()  # as the handshake of ssh: no round trip of the work
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
        """Close all streams. The connection of the server to the phone stays: it is shared."""
        self._seen = None
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close()

    def identity(self, deadline: Deadline) -> Identity:
        """Serial number of the phone itself, and the USB path where it hangs."""
        deadline.check("asking for the identity")
        seen = self._live()
        who = self._serialno or seen.serial
        return Identity(self.name, " ".join(filter(None, [who, seen.path])))

    def _live(self) -> AdbDevice:
        if self._seen is None:
            raise UnreachableError(
                f"the connection {self.describe} is not open", device=self._host.name
            )
        return self._seen

    def run(
        self,
        command: Command,
        deadline: Deadline,
        *,
        stdin: Iterable[Chunk] = (),
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
    ) -> Result:
        """See Transport.run. At the deadline the stream is closed; the phone stays connected."""
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
        """A stream to a shell of the phone, which runs the command."""
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
        """A stream to a service of the phone, by its name. `_drop` ends it."""
        seen, link = self._live(), self._server.connect(deadline)
        with self._lock:
            self._links.add(link)
        try:
            with translated(self._server, deadline, self._wanted):
                by_id = f"host:transport-id:{seen.transport}"
                link.ask(by_id if seen.transport else f"host:transport:{seen.serial}")
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
        """See Transport.terminal."""
        server = ("-H", self._server.host, "-P", str(self._server.port))
        more = ("-t", command) if command else ()
        return [program(), *server, "-s", self._live().serial, "shell", *more]

    def dial(self, port: int, deadline: Deadline) -> PortStream:
        """See Transport.dial: the service `tcp:PORT`, which is what `adb forward` uses."""
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
        """OKAY, or the reason that the server gives."""
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
        """True only when the server knows this phone's features and shell_v2 is none of them."""
        seen = self._live()
        by_id = f"host-transport-id:{seen.transport}:features"
        try:
            said = self._server.ask(
                by_id if seen.transport else f"host-serial:{seen.serial}:features", Deadline(2.0)
            )
        except FleetError:
            return False
        return "shell_v2" not in said.split(",")

    def _lost(self, text: str) -> TransportError:
        """ConnectionLostError; the server itself may have been ended by another adb."""
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
