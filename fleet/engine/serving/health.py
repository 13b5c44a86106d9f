"""/health of a service, asked over the connection to its device."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, DeviceError, reason
from fleet.transport.base import PortStream

HEALTH_SECONDS = 10.0
_MOST_BYTES = 64 << 10
_REQUEST = b"GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
Dial = Callable[[int, Deadline], PortStream]


class NoHealthError(DeviceError):
    """Something is at the port, and does not say how the service is."""


def ask_health(dial: Dial, port: int) -> dict[str, Any]:
    """What /health says, whatever its status. Raises NoHealthError, and what `dial` raises."""
    deadline = Deadline(HEALTH_SECONDS)
    stream = dial(port, deadline)
    late = threading.Timer(deadline.remaining, stream.close)
    late.daemon = True
    late.start()
    said = bytearray()
    try:
        stream.sendall(_REQUEST)
        while len(said) < _MOST_BYTES and (chunk := stream.recv(4096)):
            said.extend(chunk)
    except OSError as error:
        if not deadline.expired:
            raise NoHealthError(
                f"the service at port {port} of the device stopped in the middle of its answer "
                f"to /health: {reason(error)}",
            ) from error
    finally:
        late.cancel()
        stream.close()
    if deadline.expired:
        raise NoHealthError(
            f"the service at port {port} of the device did not answer to /health in time"
        )
    try:
        found = json.loads(bytes(said).partition(b"\r\n\r\n")[2])
        if not isinstance(found, dict) or "status" not in found:
            raise ValueError
    except ValueError as error:
        raise NoHealthError(
            f"port {port} of the device is in use by a program that fleet did not start; the "
            f"program answers {bytes(said[:100])!r}",
            hint="set another port in the playbook: `serve: {port: ...}`",
        ) from error
    return found


def health_or_why(dial: Dial, port: int | None) -> tuple[dict[str, Any] | None, DeviceError | None]:
    """As ask_health; None where nothing of ours answers, and why where that is known."""
    if port is None:
        return None, None
    try:
        return ask_health(dial, port), None
    except NoHealthError as error:
        return None, error
    except (DeviceError, DeadlineError):  # nothing is there
        return None, None


def belongs(said: dict[str, Any] | None, name: str) -> bool:
    """Whether the one that answers is the service of that name."""
    return said is not None and said.get("name") == name
