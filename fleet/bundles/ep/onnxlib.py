"""The optional package `onnx`, which reads and writes ONNX models."""

from __future__ import annotations

from types import ModuleType

from fleet.model.errors import BundleError
from fleet.model.extras import install_extra


def onnx_package(why: str) -> ModuleType:
    """Import the package. Raises BundleError with the command that installs it."""
    try:
        import onnx  # noqa: PLC0415
        import onnx.helper  # noqa: PLC0415
    except ImportError as error:
        raise BundleError(
            f"the Python package onnx is not installed (it is needed {why})",
            hint=install_extra("onnx"),
        ) from error
    return onnx
