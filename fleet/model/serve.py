"""The `serve:` section of a playbook: a model as a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.model.home import fleet_home

DEFAULT_PORT = 8000
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ProgramArchive:
    """An archive with a program of a playbook. `source` is its URL, or its path on this
    workstation.
    """

    source: str
    sha256: str

    @property
    def folder(self) -> Path:
        """The folder of this workstation into which the archive is unpacked."""
        return fleet_home() / "programs" / self.sha256


@dataclass(frozen=True)
class ServeSpec:
    """A service. `backend` None: the one for the bundle. Limits are in tokens, bytes and seconds.

    `queue` is the number of requests that may wait next to the running one. `template` is a chat
    template (`source`) with its special tokens (`bos`, `eos`); None: no chat. `program` is the
    server of GenieX, unpacked from `archive` if it is not a file of the user.
    """

    backend: str | None = None
    port: int = DEFAULT_PORT
    bind: str = LOOPBACK[0]
    queue: int = 64
    max_tokens: int = 512
    max_prompt_bytes: int = 32 << 10
    request_timeout: float = 300.0
    stop_timeout: float = 20.0
    template: Mapping[str, str] | None = None
    program: Path | None = None
    archive: ProgramArchive | None = None

    @property
    def private(self) -> bool:
        """True if only the device itself reaches the service; others need a tunnel."""
        return self.bind in LOOPBACK
