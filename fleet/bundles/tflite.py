"""The operations of a .tflite: how many were compiled for an NPU, and how many stay on the CPU.

LiteRT's ahead-of-time compiler replaces each part that it compiled by one custom operation
(litert/core/dispatch_op_schema.h of google-ai-edge/LiteRT; observed in the output of 2.3.0). The
positions of the fields are those of tensorflow/compiler/mlir/lite/schema/schema.fbs.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from fleet.model.errors import BundleError

_COMPILED = b"DISPATCH_OP"
_CODES, _GRAPHS = 1, 2  # of Model
_CUSTOM = 1  # of OperatorCode
_OPERATIONS = 3  # of SubGraph
_CODE = 0  # of Operator


@dataclass(frozen=True)
class Operations:
    """Operations in all graphs of a model: `compiled` parts for an NPU, `others` for the CPU."""

    compiled: int
    others: int


def operations(path: Path) -> Operations:
    """Count the operations of a .tflite. Raises BundleError if the file is missing or not a
    .tflite.
    """
    try:
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if data[4:8] != b"TFL3":
                raise ValueError("no TFL3 in its head")
            return _counted(_Tables(data))
    except (OSError, ValueError, struct.error) as error:
        raise BundleError(
            f"cannot read {path} as .tflite: {error}", hint="copy the whole file again"
        ) from error


def _counted(model: _Tables) -> Operations:
    codes = model.tables(model.root, _CODES)
    npu = {at for at, code in enumerate(codes) if model.text(code, _CUSTOM) == _COMPILED}
    used = [
        model.number(operation, _CODE)
        for graph in model.tables(model.root, _GRAPHS)
        for operation in model.tables(graph, _OPERATIONS)
    ]
    compiled = sum(code in npu for code in used)
    return Operations(compiled, len(used) - compiled)


class _Tables:
    """The tables of a flatbuffer. An offset outside the file raises struct.error or ValueError."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.root = self._to(0)

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("an offset points past the end of the file (it is cut off or damaged)")
        value: int = struct.unpack_from(f"<{form}", self._data, at)[0]
        return value

    def _to(self, at: int) -> int:
        return at + self._read("I", at)

    def _field(self, table: int, number: int) -> int | None:
        kinds = table - self._read("i", table)
        place = 4 + 2 * number
        offset = self._read("H", kinds + place) if place < self._read("H", kinds) else 0
        return table + offset if offset else None

    def tables(self, table: int, number: int) -> list[int]:
        at = self._field(table, number)
        if at is None:
            return []
        first = self._to(at)
        count = self._read("I", first)
        if count > len(self._data) // 4:
            raise ValueError("a list that is longer than the file")
        return [self._to(first + 4 + 4 * place) for place in range(count)]

    def text(self, table: int, number: int) -> bytes:
        at = self._field(table, number)
        first = self._to(at) if at is not None else None
        return self._data[first + 4 : first + 4 + self._read("I", first)] if first else b""

    def number(self, table: int, number: int) -> int:
        at = self._field(table, number)
        return self._read("I", at) if at is not None else 0
