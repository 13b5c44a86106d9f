"""The head of a GGUF file: the model, the split, and the types and places of its tensors.

Layout and type numbers: docs/gguf.md and ggml/include/ggml.h of ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import Any

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?",
            10: "Q", 11: "q", 12: "d"}  # fmt: skip
_STRING, _ARRAY = 8, 9
_DIMENSIONS = 4  # GGML_MAX_DIMS
_MOST = 1 << 24  # entries of one list; the vocabularies of today have up to 300,000
# Type number → name, elements of a block, bytes of a block.
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2), 39: ("MXFP4", 32, 17),
}  # fmt: skip
# supports_op of ggml-hexagon.cpp: types of weights that every build takes. Builds of 2026 also take
# some K types, so the others are a note and no refusal.
ON_HEXAGON = {"F32", "F16", "Q4_0", "Q8_0", "IQ4_NL", "MXFP4"}

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def missing_parts(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each part of a split model that is not among the names, and a name that needs it."""
    there = set(names)
    for name in sorted(there):
        part = PART.search(name)
        for number in range(1, int(part[2]) + 1) if part else ():
            other = PART.sub(f"-{number:05d}-of-{part[2] if part else 0}.gguf", name)
            if other not in there:
                there.add(other)
                yield other, f"the split model {name}"


@dataclass(frozen=True)
class Gguf:
    """The facts of one GGUF file. `types` counts its tensors by type, `end` is in bytes.

    `end` is the size that the file has at least, by the place and size of its last tensor.
    """

    values: Mapping[str, Any]
    types: Mapping[str, int]
    end: int

    @property
    def about(self) -> str:
        """The model in a few words: name, architecture, types of its tensors."""
        name = self.values.get("general.name") or self.values.get("general.basename")
        words = [str(name)] if name else []
        words += [str(self.values.get("general.architecture", "unknown architecture"))]
        count = sorted(self.types.items(), key=lambda item: -item[1])
        return ", ".join([*words, *(f"{number} tensors {kind}" for kind, number in count)])


def read_gguf(data: mmap) -> Gguf:
    """Read the head of a GGUF file. Raises ValueError or struct.error for a file that is cut."""
    reader = _Reader(data)
    if reader.version > 1 << 16:
        raise ValueError("it is for computers with big-endian numbers")
    tensors, pairs = reader.number("Q"), reader.number("Q")
    values = dict(reader.pair() for _ in range(_checked(pairs)))
    rows = [reader.tensor() for _ in range(_checked(tensors))]
    align = values.get("general.alignment", 32)
    if type(align) is not int or align < 1:
        raise ValueError(f"its general.alignment is {align}")
    start = -(-reader.at // align) * align
    end = max((start + offset + size for _, offset, size in rows), default=reader.at)
    return Gguf(values, Counter(kind for kind, _, _ in rows), end)


def _checked(count: int) -> int:
    if count > _MOST:
        raise ValueError(f"its head announces {count} entries")
    return count


class _Reader:
    def __init__(self, data: mmap) -> None:
        self._data, self.at = data, 4
        self.version = self.number("I")

    def number(self, form: str) -> Any:  # noqa: ANN401 - int, float or bool by the form
        value = struct.unpack_from(f"<{form}", self._data, self.at)[0]
        self.at += struct.calcsize(f"<{form}")
        return value

    def _text(self) -> str:
        size = self.number("Q")
        if self.at + size > len(self._data):
            raise ValueError("a text in its head points past its end")
        self.at += size
        return self._data[self.at - size : self.at].decode("utf-8", "replace")

    def pair(self) -> tuple[str, Any]:
        """Return a key and its value. Of a list, only the number of entries is returned."""
        return self._text(), self._value(self.number("I"))

    def _value(self, kind: int) -> Any:  # noqa: ANN401 - a value of any type
        if kind == _STRING:
            return self._text()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise ValueError(f"its head has a value of the unknown type {kind}")
        inner, count = self.number("I"), _checked(self.number("Q"))
        if inner in _NUMBERS:
            self.at += count * struct.calcsize(f"<{_NUMBERS[inner]}")
        else:
            for _ in range(count):
                self._value(inner)
        return count

    def tensor(self) -> tuple[str, int, int]:
        """Return type, offset and size in bytes of a tensor; an unknown type has the size 1."""
        self._text()
        if (dimensions := self.number("I")) > _DIMENSIONS:
            raise ValueError(f"its head announces a tensor of {dimensions} dimensions")
        shape = [self.number("Q") for _ in range(dimensions)]
        kind, offset = self.number("I"), self.number("Q")
        name, block, size = _TYPES.get(kind, (f"type {kind}", 0, 1))
        elements = 1
        for length in shape:
            elements *= length
        return name, offset, elements // block * size if block else size
