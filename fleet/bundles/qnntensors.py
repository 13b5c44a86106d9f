"""Tensors of a graph as libQnnSystem describes them: structures of QnnTypes.h, for qnnsystem.

Imported by the process that reads a context binary; standard library only.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    Union,
    c_char_p,
    c_float,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

_MAX_TENSORS = 4096  # of one graph; more, or more dimensions, means a damaged file was believed
_MAX_RANK = 16
_DEFINED, _SCALE_OFFSET = 1, 0
_TENSOR_V2 = 2  # V1 is its beginning


class _ScaleOffset(Structure):
    _fields_ = (("scale", c_float), ("offset", ctypes.c_int32))


class _Encoding(Union):
    _fields_ = (("scale_offset", _ScaleOffset), ("size", c_uint64 * 4))


class _Quantization(Structure):
    _fields_ = (("defined", c_uint32), ("kind", c_uint32), ("any", _Encoding))


class _Buffer(Structure):
    _fields_ = (("data", c_void_p), ("size", c_uint32))


class _Memory(Union):
    _fields_ = (("buffer", _Buffer), ("handle", c_void_p))


class _Tensor(Structure):
    _fields_ = (
        ("id", c_uint32),
        ("name", c_char_p),
        ("kind", c_uint32),
        ("format", c_uint32),
        ("type", c_uint32),
        ("quantization", _Quantization),
        ("rank", c_uint32),
        ("dimensions", POINTER(c_uint32)),
        ("memory_kind", c_uint32),
        ("memory", _Memory),
        ("dynamic", c_void_p),
        ("sparse", c_uint32 * 3),
        ("produced", c_uint8),
    )


class _Versioned(Structure):
    _fields_ = (("version", c_uint32), ("tensor", _Tensor))


def tensors(address: int | None, count: int) -> list[dict[str, object]] | None:
    """Name, type, dimensions and quantization of each; None for what cannot be believed.

    `type` is the number of Qnn_DataType_t; `scale` and `offset` only where one pair holds for
    the whole tensor (real = (stored + offset) * scale).
    """
    if (count and not address) or count > _MAX_TENSORS:
        return None
    array = ctypes.cast(address, POINTER(_Versioned)) if address else ()
    found: list[dict[str, object]] = []
    for index in range(count):
        item = array[index]
        tensor = item.tensor
        if not 1 <= item.version <= _TENSOR_V2 or tensor.rank > _MAX_RANK:
            return None
        said: dict[str, object] = {
            "name": (tensor.name or b"").decode("utf-8", "replace"),
            "type": tensor.type,
            "dimensions": [tensor.dimensions[n] for n in range(tensor.rank)],
        }
        form = tensor.quantization
        if form.defined == _DEFINED and form.kind == _SCALE_OFFSET:
            pair = form.any.scale_offset
            said |= {"scale": pair.scale, "offset": pair.offset}
        found.append(said)
    return found
