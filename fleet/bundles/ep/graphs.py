"""The graphs of a context binary, with everything that their ONNX wrapper needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fleet.bundles.context import ask_library
from fleet.model.errors import BundleError

# Qnn_DataType_t of QnnTypes.h → element type of ONNX. Stored numbers are not converted, so a
# quantized tensor (SFIXED, UFIXED) has the type of its stored numbers.
ELEMENTS: Mapping[int, str] = {
    0x0008: "INT8",
    0x0016: "INT16",
    0x0032: "INT32",
    0x0064: "INT64",
    0x0108: "UINT8",
    0x0116: "UINT16",
    0x0132: "UINT32",
    0x0164: "UINT64",
    0x0216: "FLOAT16",
    0x0232: "FLOAT",
    0x0264: "DOUBLE",
    0x0308: "INT8",
    0x0316: "INT16",
    0x0332: "INT32",
    0x0408: "UINT8",
    0x0416: "UINT16",
    0x0432: "UINT32",
    0x0508: "BOOL",
}
_BUILD = re.compile(r"v?(\d+\.\d+\.\d+)\.(\d{6,12})")


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph. `element` is ONNX's name of the stored type.

    If the tensor is quantized with one pair of `scale` and `offset`, real = (stored + offset) *
    scale. Otherwise both are None.
    """

    name: str
    element: str
    shape: tuple[int, ...]
    scale: float | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Graph:
    """A graph of a context binary."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class GraphFile:
    """A context binary with its graphs. `build_id` is the text of the file, with its `v`."""

    path: Path
    build_id: str
    backend_id: int
    backend_api: str
    soc_model: int | None
    hexagon_arch: int | None
    graphs: tuple[Graph, ...]
    PLAIN: ClassVar[str] = "build_id backend_api soc_model hexagon_arch compatibility"

    @property
    def compatibility(self) -> str:
        """`v2:<backend>:<QAIRT>:<backend API>:<arch>:<soc_model>:<VTCM MB>:<user driver>`.

        ONNX Runtime checks this record before it loads a model. The form is documented in the
        script in the wheel of onnxruntime-qnn 2.7.0. The text is "" if the QAIRT version or the
        arch is unknown.
        """
        version = _BUILD.fullmatch(self.build_id)
        if version is None or not self.hexagon_arch:
            return ""
        parts = (self.backend_id, version[1], self.backend_api, self.hexagon_arch)
        return ":".join(map(str, ("v2", *parts, self.soc_model or 0, 0, 0)))


def read_graphs(path: Path, library: Path) -> GraphFile:
    """Read the graphs of a context binary with libQnnSystem.

    Raises BundleError if the library cannot be loaded, if the file is damaged, or if a tensor has a
    type that ONNX does not have.
    """
    answer = ask_library(library, path)
    if answer is None:
        raise BundleError(
            f"{library} cannot be loaded on this computer (x86_64 Linux is needed)",
            hint="fleet runtime fetch --target x86_64-linux-clang",
        )
    if "binary" not in answer or not answer.get("graphs"):
        raise BundleError(
            f"{path}: {answer.get('problem') or 'libQnnSystem finds no graph in it'}",
            hint="copy the context binary again; fleet bundle inspect (shows the damage)",
        )
    info = answer["binary"]
    return GraphFile(
        path,
        str(info["build_id"]),
        int(info["backend_id"]),
        str(info["backend_api"]),
        info.get("soc_model") or None,
        info.get("dsp_arch") or None,
        tuple(_graph(path, item) for item in answer["graphs"]),
    )


def _graph(path: Path, item: Mapping[str, Any]) -> Graph:
    name = item["name"]
    if item["inputs"] is None or item["outputs"] is None:
        raise BundleError(
            f"{path}: fleet does not know the format of the tensors of graph {name}",
            hint="compile the model with another QAIRT version, and report the present version "
            "to the maintainers of fleet",
        )
    return Graph(
        name,
        tuple(_tensor(path, name, tensor) for tensor in item["inputs"]),
        tuple(_tensor(path, name, tensor) for tensor in item["outputs"]),
    )


def _tensor(path: Path, graph: str, item: Mapping[str, Any]) -> Tensor:
    element = ELEMENTS.get(item["type"])
    if element is None:
        raise BundleError(
            f"{path}: tensor {item['name']} of graph {graph} has the QNN type "
            f"0x{item['type']:04x}, which ONNX does not have",
            hint="compile the model again with 8 or 16 bit inputs and outputs",
        )
    return Tensor(
        item["name"], element, tuple(item["dimensions"]), item.get("scale"), item.get("offset")
    )
