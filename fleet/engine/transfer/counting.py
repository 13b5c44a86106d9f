"""How much of a stream the link took. What was handed over is more: an adb server takes tens of
megabytes before the phone has them (adb 36: 78 MB ahead over a link of 40 MB/s).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleet.engine.session import Session
from fleet.model.inventory import ADB
from fleet.model.plan import Blob
from fleet.ops.upload import Receipt

_FAR_OFF = ADB.name  # the carrier in front of which bytes wait that nobody can count


class Counting:
    """The payload of one stream in `session.payload_bytes`, corrected when the stream breaks."""

    def __init__(
        self, session: Session, blobs: Sequence[Blob], receipt: Receipt, packed: Collection[str]
    ) -> None:
        """`packed`: sha256 of those that are compressed."""
        self._session = session
        self._blobs = blobs
        self._receipt = receipt
        self._exact = all(blob.plain and blob.file.sha256 not in packed for blob in blobs)
        self._before = session.payload_bytes
        self._over = False

    def told(self, wire: int) -> None:
        """So many bytes of this stream were handed over."""
        if not self._over:
            self._session.payload_bytes = self._before + wire

    def broke(self, carrier: str) -> None:
        """The link is gone: nothing counts after it, and of what waited only what arrived."""
        self._over = True
        if carrier == _FAR_OFF:
            arrived = self._before + sum(self._known(blob) for blob in self._blobs)
            self._session.payload_bytes = min(self._session.payload_bytes, arrived)

    def settle(self, lacking: Sequence[Blob]) -> None:
        """The device has said what it lacks now."""
        if not self._exact:
            return
        left = {blob.file.sha256: blob.left for blob in lacking}
        gone = (max(0, blob.left - left.get(blob.file.sha256, 0)) for blob in self._blobs)
        self._session.payload_bytes = self._before + sum(gone)

    def _known(self, blob: Blob) -> int:
        """What the device has said of a blob before the link broke."""
        if blob.file.sha256 in self._receipt.ok:
            return blob.left
        took = self._receipt.took
        return min(blob.left, max(took.get(blob.file.sha256, 0), took.get(blob.part, 0)))
