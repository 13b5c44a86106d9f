"""Ports of boards whose daemon binds them itself."""

from __future__ import annotations

import socket

from fleet.model.errors import LabError


def claimed(port: int, option: str) -> int:
    """The port if it is free, or a free one for 0. Raises LabError that names the option."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LabError(
                f"port {port} is in use", hint=f"`fleet lab up` with another {option}"
            ) from error
        return int(probe.getsockname()[1])
