"""The transfer of blobs to worker machines. A blob is read once for all machines that want it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.engine.cluster import worker
from fleet.model.errors import FleetError, TransferError, UnreachableError

PIECE_BYTES = 4 << 20
ABREAST = 8  # machines in one broadcast: 32 MiB of pieces in the scheduler, whatever the cluster

Call = Callable[..., dict[str, Any]]


@dataclass
class _Taker:
    """A machine that wants a blob: the receiving process, and all processes that asked."""

    address: str
    asked: set[str]
    left: set[int]


@dataclass
class _Blob:
    path: Path
    size: int
    takers: dict[str, _Taker] = field(default_factory=dict)

    @property
    def pieces(self) -> int:
        return max(1, -(-self.size // PIECE_BYTES))


class Broadcast:
    """A thread that sends blobs: each piece is read once and sent to all machines that need it.

    `call(addresses, function, *args)` runs a function of `worker` on processes. It returns address
    → result or exception, UnreachableError for a process that is gone. The thread holds one piece
    in memory. A machine gets each blob once, whatever the number of its processes and boards. A
    machine that asks late joins at the next piece.
    """

    def __init__(self, call: Call, fail: Callable[[set[str], str, FleetError], None]) -> None:
        self._call, self._fail = call, fail
        self._wanted: dict[str, _Blob] = {}
        self._lock = threading.Condition()
        self._ended = False
        self.bytes_read = 0
        self.bytes_sent: dict[str, int] = {}
        self._thread = threading.Thread(target=self._go_round, daemon=True, name="fleet-blobs")
        self._thread.start()

    def want(self, address: str, machine: str, blobs: Mapping[str, tuple[int, Path]]) -> None:
        """Request blobs (sha256 → size, path here) for a process of `machine`."""
        with self._lock:
            for sha, (size, path) in blobs.items():
                blob = self._wanted.setdefault(sha, _Blob(path, size))
                taker = blob.takers.get(machine)
                if taker is None:
                    blob.takers[machine] = _Taker(address, {address}, set(range(blob.pieces)))
                else:
                    taker.asked.add(address)
            self._lock.notify_all()

    def close(self) -> None:
        """Stop after the current piece."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        self._thread.join()

    def _go_round(self) -> None:
        while True:
            with self._lock:
                while not self._wanted and not self._ended:
                    self._lock.wait()
                if self._ended:
                    return
                sha, blob = next(iter(self._wanted.items()))
            try:
                self._turn(sha, blob)
            except (OSError, FleetError) as error:
                self._give_up(sha, blob, error)

    def _turn(self, sha: str, blob: _Blob) -> None:
        """Read the file once for the missing pieces, then finish the machines that have them
        all.
        """
        with blob.path.open("rb") as stream:
            for index in range(blob.pieces):
                with self._lock:
                    takers = {k: t for k, t in blob.takers.items() if index in t.left}
                if self._ended:
                    return
                if takers:
                    self._send(sha, blob, index, takers, _read(stream, blob, index))
        self._finish(sha, blob)

    def _send(
        self, sha: str, blob: _Blob, index: int, takers: dict[str, _Taker], data: bytes
    ) -> None:
        self.bytes_read += len(data)
        offset, names = index * PIECE_BYTES, list(takers)
        for start in range(0, len(names), ABREAST):
            group = {takers[name].address: name for name in names[start : start + ABREAST]}
            answers = self._call(list(group), worker.take_piece, sha, blob.size, offset, data)
            for address, name in group.items():
                problem = answers.get(
                    address, UnreachableError("the connection to the dask worker broke")
                )
                if isinstance(problem, Exception):
                    self._lose(sha, blob, name, problem)
                else:
                    takers[name].left.discard(index)
                    self.bytes_sent[name] = self.bytes_sent.get(name, 0) + len(data)

    def _finish(self, sha: str, blob: _Blob) -> None:
        with self._lock:
            whole = {taker.address: name for name, taker in blob.takers.items() if not taker.left}
        answers = self._call(list(whole), worker.finish_blob, sha) if whole else {}
        for address, name in whole.items():
            problem = answers.get(
                address, UnreachableError("the connection to the dask worker broke")
            )
            if isinstance(problem, Exception):
                self._lose(sha, blob, name, problem)
        with self._lock:
            for name in whole.values():
                blob.takers.pop(name, None)
            if not blob.takers:
                self._wanted.pop(sha, None)

    def _lose(self, sha: str, blob: _Blob, name: str, problem: Exception) -> None:
        """Send the blob to another process of the machine whose process failed with `problem`.

        If no process is left that asked, or the machine cannot store it, they all get an error.
        """
        with self._lock:
            taker = blob.takers[name]
            taker.asked.discard(taker.address)
            if isinstance(problem, UnreachableError) and taker.asked:
                taker.address = min(taker.asked)
                taker.left = set(range(blob.pieces))
                return
            blob.takers.pop(name)
        error = TransferError(
            f"the worker {name} cannot store a file: {problem}",
            hint="check the free disk space on the machine of the worker: df -h",
        )
        self._fail(taker.asked | {taker.address}, sha, error)
        self._call([taker.address], worker.drop_blob, sha)

    def _give_up(self, sha: str, blob: _Blob, problem: Exception) -> None:
        with self._lock:
            self._wanted.pop(sha, None)
            takers = list(blob.takers.values())
        error = TransferError(f"cannot read {blob.path}: {problem}", hint="deploy again")
        for taker in takers:
            self._fail(taker.asked, sha, error)
            self._call([taker.address], worker.drop_blob, sha)


def _read(stream: Any, blob: _Blob, index: int) -> bytes:  # noqa: ANN401 - a binary file
    stream.seek(index * PIECE_BYTES)
    data: bytes = stream.read(PIECE_BYTES)
    if len(data) != min(PIECE_BYTES, blob.size - index * PIECE_BYTES):
        raise TransferError(f"the file {blob.path} was modified while fleet sent it")
    return data
