"""One device at work: its transport, its deadlines, and a second try after a broken link."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import CancelledError, DeviceError, TransportError
from fleet.model.events import Event, Listener
from fleet.model.inventory import Host
from fleet.transport import Traffic, Transport, transport_for

CONTROL_SECONDS = 60.0  # a control script takes below 1 s; slow flash under load takes more


class Session:
    """A host of the inventory with a transport that can be opened anew.

    `traffic` adds up over all connections; `payload_bytes` counts the bytes of blobs only.
    """

    def __init__(self, host: Host, listener: Listener, *, accept_new: bool = False) -> None:
        self.host = host
        self.say = listener
        self._accept_new = accept_new
        self.payload_bytes = 0
        self._cancelled = False
        self._past: list[Traffic] = []
        self.transport: Transport = transport_for(host, accept_new=accept_new)

    def open(self) -> None:
        """Connect within the host's connect_timeout."""
        self.transport.open(Deadline(self.host.connect_timeout))

    def reopen(self) -> None:
        """Drop the connection and make a new one; the identity is checked again."""
        if self._cancelled:
            raise CancelledError("cancelled", device=self.host.name)
        self.close()
        self._past.append(self.transport.traffic)
        self.transport = transport_for(self.host, accept_new=self._accept_new)
        self.open()

    def close(self) -> None:
        """Let go of the connection."""
        self.transport.close()

    def cancel(self) -> None:
        """End what is under way, from another thread: the connection goes, no new one comes.

        Nothing is undone on the device: releases are old or new at every instant.
        """
        self._cancelled = True
        self.close()

    @property
    def traffic(self) -> Traffic:
        """All traffic of this session so far."""
        every = [*self._past, self.transport.traffic]
        return Traffic(
            sum(one.round_trips for one in every),
            sum(one.bytes_sent for one in every),
            sum(one.bytes_received for one in every),
        )

    @property
    def identity(self) -> str:
        """`host-key SHA256:...` of the open connection."""
        who = self.transport.identity(Deadline(5))
        return f"{who.kind} {who.value}"

    def run(
        self,
        command: Command,
        step: str,
        *,
        stdin: Iterable[bytes] = (),
        seconds: float = CONTROL_SECONDS,
    ) -> Result:
        """Run a command whose status the caller judges."""
        try:
            return self.transport.run(command, Deadline(seconds), stdin=stdin)
        except TransportError as error:
            error.step = error.step or step
            raise

    def ask(
        self,
        command: Command,
        step: str,
        *,
        stdin: Iterable[bytes] = (),
        seconds: float = CONTROL_SECONDS,
    ) -> Result:
        """Run a control script; DeviceError with its last words when it fails."""
        result = self.run(command, step, stdin=stdin, seconds=seconds)
        if not result.ok:
            words = result.error_text or result.text.strip() or "no message"
            raise DeviceError(
                f"{step} failed with status {result.status}: {words[-400:]}",
                device=self.host.name,
                step=step,
            )
        return result

    def emit(self, event: Event) -> None:
        """Tell the listener."""
        self.say(event)
