"""Whatever is in the files: inspect answers or raises FleetError, nothing else."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.preflight import preflight
from fleet.model.bundle import Bundle
from fleet.model.errors import FleetError

from .conftest import DATA, V73, genie_config, make_case

SHARD = (DATA / V73).read_bytes()
CONFIG = json.dumps(genie_config((V73,)), indent=1).encode()
FUZZ = settings(
    max_examples=100,
)
KEYS = st.sampled_from(
    ["dialog", "engine", "backend", "type", "model", "binary", "ctx-bins", "path", "extensions",
     "tokenizer", "context", "size", "devices", "soc_model", "dsp_arch", "forecast-prefix-name"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
    | st.sampled_from([V73, "ext.json", "..", ".", "~", "QnnHtp", "a" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@contextmanager
def folder(config: bytes, shard: bytes = SHARD, **others: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "genie_config.json").write_bytes(config)
        (root / V73).write_bytes(shard)
        (root / "tokenizer.json").write_bytes(b"{}")
        for key, data in others.items():
            (root / key.replace("__", ".")).write_bytes(data)
        yield root


def answer(root: Path, library: Path | None = None) -> Bundle | None:
    """Inspect, and when that answers, the pre-flight must too."""
    with contextlib.suppress(FleetError):
        bundle = inspect_bundle(root, library)
        case = make_case(bundle)
        preflight(bundle, case.runtime, case.selection, case.target, case.facts)
        return bundle
    return None


@FUZZ
@given(st.binary(max_size=60), st.integers(0, len(CONFIG)), st.integers(0, 20))
def test_damaged_configuration(data: bytes, at: int, drop: int) -> None:
    with folder(CONFIG[:at] + data + CONFIG[at + drop :]) as root:
        answer(root)


@FUZZ
@given(VALUES, VALUES)
def test_any_configuration(dialog: object, ext: object) -> None:
    config = genie_config((V73,), anything=dialog)
    with folder(json.dumps(config).encode(), htp_ext__json=json.dumps(ext).encode()) as root:
        answer(root)
    with folder(json.dumps({"dialog": dialog}).encode()) as root:
        answer(root)


@FUZZ
@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80))
def test_any_side_file(version: bytes, metadata: bytes, sums: bytes) -> None:
    files = {
        "tool-versions__yaml": b"qairt: " + version,
        "metadata__json": metadata,
        "SHA256SUMS": sums,
        "htp_ext__json": b"{}",
    }
    with folder(CONFIG, **files) as root:
        answer(root)


@FUZZ
@given(st.binary(max_size=200), st.integers(0, len(SHARD)), st.integers(0, 400))
def test_damaged_binary_by_markers(data: bytes, at: int, drop: int) -> None:
    with folder(CONFIG, SHARD[:at] + data + SHARD[at + drop :], htp_ext__json=b"{}") as root:
        assert answer(root) is not None


@pytest.mark.qairt
@settings(FUZZ, max_examples=30)
@given(st.binary(min_size=1, max_size=200), st.integers(0, len(SHARD)), st.booleans())
def test_damaged_binary_by_the_library(qnn_system: Path, data: bytes, at: int, keep: bool) -> None:
    """The real library, in its own process: what it crashes on is a problem of the file."""
    drop = len(data) if keep else 0
    changed = SHARD[:at] + data + SHARD[at + drop :]
    with folder(CONFIG, changed, htp_ext__json=b"{}") as root:
        assert answer(root, qnn_system) is not None


@pytest.mark.qairt
@settings(FUZZ, max_examples=30)
@given(st.binary(min_size=1, max_size=16), st.integers(0, 4096))
def test_damaged_head_by_the_library(qnn_system: Path, data: bytes, at: int) -> None:
    changed = SHARD[:at] + data + SHARD[at + len(data) :]
    with folder(CONFIG, changed, htp_ext__json=b"{}") as root:
        assert answer(root, qnn_system) is not None
