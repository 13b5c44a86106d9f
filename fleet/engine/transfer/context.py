"""What all uploads of one operation share, and how they are to go about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from fleet.config.tune import CARRIERS
from fleet.content.signatures import BlockSignature, Signatures
from fleet.engine.transfer.compression import Sampler
from fleet.engine.transfer.limits import Hubs, Throttle
from fleet.engine.transfer.neighbours import Neighbours
from fleet.engine.transfer.reading import SharedSource
from fleet.model.errors import InputError
from fleet.model.plan import Blob, Delta


@dataclass(frozen=True)
class TransferOptions:
    """Wishes of the user. `carrier` for ssh hosts: auto, paramiko or ssh. `bandwidth` bytes a
    second for all devices together. `per_hub` uploads at a time behind one hub.
    `whole`: no deltas. `compress`: auto, always or never. `relay`: boards with one label `lan`
    serve each other.
    """

    carrier: str = "auto"
    bandwidth: float | None = None
    per_hub: int | None = None
    whole: bool = False
    compress: str = "auto"
    relay: bool = False

    def __post_init__(self) -> None:
        if self.carrier not in CARRIERS:
            raise InputError(
                f"'{self.carrier}' is not an SSH client that fleet can use as `carrier`",
                hint=f"use one of: {', '.join(CARRIERS)}",
            )


@dataclass
class TransferContext:
    """One for an operation; used by the threads of all its devices."""

    options: TransferOptions = field(default_factory=TransferOptions)
    source: SharedSource = field(default_factory=SharedSource)
    signatures: Signatures = field(default_factory=Signatures)
    sampler: Sampler = field(default_factory=Sampler)
    bulk: bool = False  # so much is to be sent that a second carrier pays

    def __post_init__(self) -> None:
        self.hubs = Hubs(self.options.per_hub)
        self.neighbours = Neighbours() if self.options.relay else None
        self.throttle = Throttle(self.options.bandwidth) if self.options.bandwidth else None
        self.asked: dict[str, BlockSignature] = {}  # what devices said of their old blobs
        self._deltas: dict[tuple[str, str, str], Future[Delta | None]] = {}
        self._lock = threading.Lock()

    def delta(self, blob: Blob, kind: str, find: Callable[[], Delta | None]) -> Delta | None:
        """What `find` finds for this pair of contents; looked for once, the others wait.

        `find` works on this machine only: no device waits for another one.
        """
        key, mine = (blob.file.sha256, blob.base, kind), Future[Delta | None]()
        with self._lock:
            known = self._deltas.setdefault(key, mine)
        if known is not mine:
            return known.result()
        try:
            mine.set_result(find())
        except BaseException as error:
            mine.set_exception(error)
            with self._lock:
                self._deltas.pop(key, None)
            raise
        return mine.result()
