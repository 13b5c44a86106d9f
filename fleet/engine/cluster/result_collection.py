"""Records and undo logs of a worker, brought to where the workstation keeps its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from fleet.engine.cluster import worker
from fleet.engine.cluster.broadcast import PIECE_BYTES, Call
from fleet.engine.cluster.wire import Carried, Reply
from fleet.engine.undoing import undo_root
from fleet.model.errors import TransferError
from fleet.model.files import check_name
from fleet.model.home import kept, open_private, private_folder
from fleet.model.record import Record
from fleet.profiles.runs import RunStore


class ResultCollection:
    """Writes the files of replies below the folders of `runs`. One piece in memory."""

    def __init__(self, call: Call, order: str, runs: RunStore) -> None:
        self._call, self._order, self._runs = call, order, runs

    def bring(self, reply: Reply, address: str) -> list[Record]:
        """Store what came; the records with paths of this workstation.

        Raises TransferError where a large file cannot be had any more, InputError for a name
        that leads elsewhere, WorkstationError where it cannot be stored.
        """
        for item in reply.files:
            target = self._place(item.name)
            part = target.with_name(f"{target.name}.part")
            with kept(target):
                private_folder(target.parent)
                with open_private(part) as stream:
                    for data in self._pieces(item, address):
                        stream.write(data)
                part.replace(target)
        return [self._own(record) for record in (reply.result.records if reply.result else ())]

    def _place(self, name: str) -> Path:
        check_name(name)
        top, _, rest = name.partition("/")
        roots = {"runs": self._runs.root, "undo": undo_root(self._runs)}
        if top not in roots:
            raise TransferError(
                f"a worker of the dask cluster sent {name!r}, a result file that fleet did not "
                "ask for; fleet did not store the file",
                hint="install the version of this workstation on the workers; then run the command "
                "again",
            )
        return roots[top] / rest

    def _pieces(self, item: Carried, address: str) -> Iterator[bytes]:
        if item.data is not None:
            yield item.data
            return
        for offset in range(0, item.size, PIECE_BYTES):
            said = self._call(
                [address], worker.read_piece, self._order, item.name, offset, PIECE_BYTES
            )
            data = said.get(address)
            if not isinstance(data, bytes):
                raise TransferError(
                    f"the worker {address} of the dask cluster did not send the result file "
                    f"{item.name}",
                    hint="copy the file by hand from FLEET_HOME/cluster/ on the machine of that "
                    "worker",
                )
            yield data

    def _own(self, record: Record) -> Record:
        """The record with artifacts where they are now, saved like that."""
        name = f"warmup-{record.repeat}" if record.warmup else str(record.repeat)
        folder = self._runs.root / record.run_id / record.host / name
        own = replace(record, artifacts={key: str(folder / key) for key in record.artifacts})
        return self._runs.save(folder, own)
