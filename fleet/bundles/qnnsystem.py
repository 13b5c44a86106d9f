"""A reader of one context binary by libQnnSystem: `python -m fleet.bundles.qnnsystem LIB FILE`.

The reader is a separate process, because a broken file may crash the library. It prints one JSON
object a line, each as soon as it is known: {"system": ...}, then {"code": n} for a refusal or
{"binary": ...}, then {"graphs": [...]}. Lines printed before a crash are valid.

The structures follow the public QAIRT headers QnnSystemInterface.h, QnnSystemContext.h and
QnnTypes.h. The layout was measured on files with one and with three graphs (QAIRT 2.51.0).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
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
from pathlib import Path

# Tensors of a graph as libQnnSystem describes them: structures of QnnTypes.h.
#
# The reader process runs this module with the standard library only.

_MAX_TENSORS = 4096  # of a graph; more tensors, or more dimensions, mean a damaged file
_MAX_RANK = 16
_DEFINED, _SCALE_OFFSET = 1, 0
_TENSOR_V2 = 2  # V1 is the beginning of V2


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
    """Return the name, type, dimensions and quantization of each tensor, or None for invalid data.

    `type` is the number of Qnn_DataType_t. `scale` and `offset` are there only if one pair holds
    for the whole tensor (real = (stored + offset) * scale).
    """
    if (count and not address) or count > _MAX_TENSORS:
        return None
    array = ctypes.cast(address, POINTER(_Versioned)) if address else ()
    rows: list[dict[str, object]] = []
    for index in range(count):
        item = array[index]
        tensor = item.tensor
        if not 1 <= item.version <= _TENSOR_V2 or tensor.rank > _MAX_RANK:
            return None
        row: dict[str, object] = {
            "name": (tensor.name or b"").decode("utf-8", "replace"),
            "type": tensor.type,
            "dimensions": [tensor.dimensions[n] for n in range(tensor.rank)],
        }
        form = tensor.quantization
        if form.defined == _DEFINED and form.kind == _SCALE_OFFSET:
            pair = form.any.scale_offset
            row |= {"scale": pair.scale, "offset": pair.offset}
        rows.append(row)
    return rows


_METADATA_V3 = 3  # the only version with socModel and contextMetadata (dspArch)
_GRAPH_V3 = 3  # the only version with a graph blob (VTCM)
_VTCM_OFFSET = 16  # bytes: version, padding, spillFillBufferSize, vtcmSize (measured: 2, 4, 8 MB)
_MAX_GRAPHS = 4096  # more graphs mean a damaged file


class _Version(Structure):
    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("patch", c_uint32))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class _Graph(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("inputs", c_uint32),
        ("input_tensors", c_void_p),
        ("outputs", c_uint32),
        ("output_tensors", c_void_p),
        ("updateable", c_uint32),
        ("updateable_tensors", c_void_p),
        ("blob_size", c_uint32),
        ("blob", c_void_p),
        ("start_op", c_uint32),
        ("end_op", c_uint32),
    )


class _GraphInfo(Structure):
    _fields_ = (("version", c_uint32), ("info", _Graph))


class _Head(Structure):
    """The common head of all versions of QnnSystemContext_BinaryInfo."""

    _fields_ = (
        ("backend_id", c_uint32),
        ("build_id", c_char_p),
        ("core_api", _Version),
        ("backend_api", _Version),
        ("soc_version", c_char_p),
    )


class _Tail(Structure):
    _fields_ = (
        ("blob_size", c_uint64),
        ("context_tensors", c_uint32),
        ("context_tensor", c_void_p),
        ("graph_count", c_uint32),
        ("graphs", c_void_p),
        ("platform", c_void_p),
    )


class _InfoV1(Structure):
    _fields_ = (
        ("head", _Head),
        ("hardware_version", _Version),
        ("blob_version", _Version),
        ("hardware_size", c_uint32),
        ("hardware", c_void_p),
        ("tail", _Tail),
    )


class _InfoV3(Structure):
    _fields_ = (
        ("head", _Head),
        ("blob_version", _Version),
        ("tail", _Tail),
        ("metadata_size", c_uint32),
        ("metadata", c_void_p),
        ("soc_model", c_uint32),
    )


class _InfoUnion(Union):
    _fields_ = (("v1", _InfoV1), ("v3", _InfoV3))


class _Info(Structure):
    _fields_ = (("version", c_uint32), ("any", _InfoUnion))


class _Interface(Structure):
    _fields_ = (
        ("backend_id", c_uint32),
        ("name", c_char_p),
        ("api", _Version),
        ("create", c_void_p),
        ("get_binary_info", c_void_p),
        ("get_metadata", c_void_p),
        ("free", c_void_p),
    )


def read(library: str, path: Path) -> None:
    """Print the metadata of a context binary. Raises OSError if the library or the file cannot be
    opened.
    """
    interface = _interface(library)
    _say(system=str(interface.api))
    create = ctypes.CFUNCTYPE(c_uint64, POINTER(c_void_p))(interface.create)
    ask = ctypes.CFUNCTYPE(c_uint64, c_void_p, c_void_p, c_uint64, POINTER(POINTER(_Info)))(
        interface.get_metadata
    )
    handle = c_void_p()
    code = create(ctypes.byref(handle))
    if code:
        raise OSError(f"systemContextCreate failed with {code}")
    with path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)  # pages are read as needed
    size = len(data)
    pointer = POINTER(_Info)()
    code = ask(
        handle, ctypes.addressof(ctypes.c_char.from_buffer(data)), size, ctypes.byref(pointer)
    )
    if code:
        _say(code=code)
        return
    info = pointer.contents
    _say(binary=_binary(info))
    _say(graphs=_graphs(_tail(info)))


def _interface(library: str) -> _Interface:
    providers = POINTER(POINTER(_Interface))()
    count = c_uint32()
    get = ctypes.CDLL(library).QnnSystemInterface_getProviders
    if get(ctypes.byref(providers), ctypes.byref(count)) or not count.value:
        raise OSError("QnnSystemInterface_getProviders gives no provider")
    interface: _Interface = providers[0].contents
    return interface


def _tail(info: _Info) -> _Tail:
    part = info.any.v3 if info.version == _METADATA_V3 else info.any.v1
    tail: _Tail = part.tail
    return tail


def _binary(info: _Info) -> dict[str, object]:
    head = info.any.v3.head
    result: dict[str, object] = {
        "version": info.version,
        "backend_id": head.backend_id,
        "build_id": _text(head.build_id),
        "core_api": str(head.core_api),
        "backend_api": str(head.backend_api),
        "blob_size": _tail(info).blob_size,
    }
    if info.version != _METADATA_V3:
        return {**result, "blob_version": str(info.any.v1.blob_version)}
    v3 = info.any.v3
    arch = None
    if v3.metadata and v3.metadata_size >= 8:
        arch = ctypes.cast(v3.metadata, POINTER(c_uint32))[1]
    return {
        **result,
        "blob_version": str(v3.blob_version),
        "soc_model": v3.soc_model,
        "dsp_arch": arch,
    }


def _graphs(tail: _Tail) -> list[dict[str, object]]:
    """Return the name, VTCM bytes, inputs and outputs of every graph.

    The list ends before a graph of an unknown version.
    """
    if not tail.graphs or tail.graph_count > _MAX_GRAPHS:
        return []
    array = ctypes.cast(tail.graphs, POINTER(_GraphInfo))
    result: list[dict[str, object]] = []
    for index in range(tail.graph_count):
        item = array[index]
        if not 1 <= item.version <= _GRAPH_V3:
            break  # the stride of the array is unknown, so the rest cannot be read
        vtcm = None
        info = item.info
        if item.version == _GRAPH_V3 and info.blob and info.blob_size >= _VTCM_OFFSET + 4:
            vtcm = ctypes.cast(info.blob + _VTCM_OFFSET, POINTER(c_uint32))[0]
        result.append(
            {
                "name": _text(info.name),
                "vtcm": vtcm,
                "inputs": tensors(info.input_tensors, info.inputs),
                "outputs": tensors(info.output_tensors, info.outputs),
            }
        )
    return result


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        read(sys.argv[1], Path(sys.argv[2]))
    except (OSError, ValueError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(3)
