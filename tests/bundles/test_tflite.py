"""Operations of a .tflite: the two of ours, as LiteRT 2.3.0 wrote the compiled one, and damage."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.tflite import Operations, operations
from fleet.model.errors import BundleError

ASSETS = Path(__file__).parents[2] / "assets" / "tiny-litert-npu"
COMPILED = ASSETS / "tiny_SM8750.tflite"


def test_what_was_compiled_is_one_operation_and_the_rest_stays() -> None:
    assert operations(ASSETS / "tiny.tflite") == Operations(0, 4)
    assert operations(COMPILED) == Operations(1, 1)


def test_the_chip_and_qairt_of_a_compiled_model_are_read_out_of_it() -> None:
    bundle = inspect_bundle(ASSETS, kind="litert")
    (context,) = bundle.contexts
    assert (context.name, context.soc_type, context.hexagon_arch) == (
        COMPILED.name, "SM8750", "v79",
    )  # fmt: skip
    assert bundle.qairt == "2.51.0.260929181845"


@given(st.integers(0, COMPILED.stat().st_size - 1), st.integers(0, 2048), st.integers(0, 255))
def test_a_damaged_file_is_counted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, cut: int, place: int, value: int
) -> None:
    data = bytearray(COMPILED.read_bytes()[: cut + 1])
    data[min(place, cut)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.tflite"
    path.write_bytes(data)
    with contextlib.suppress(BundleError):
        assert operations(path).others >= 0
