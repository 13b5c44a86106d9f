"""Context binaries with one flipped bit: does `fleet verify` find those that answer otherwise?

    python -m benchmarks.verify_flips SITE [--binaries N]

SITE is a folder with onnxruntime-qnn and numpy. The context binaries of assets/ run on the HTP
emulator (emulated) by the script of the runner ort. The reference of `verify:` is what the
undamaged binary gave, recorded, with `max_abs: 0`. Its samples have each token of the vocabulary
and each position once, because a bit of a table shows with its own row alone; FEW random samples
are judged beside them. Whether the output of a damaged binary changes at all is asked with PROBES
more inputs too, which no sample has. Same seed, same table.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from fleet.model.errors import Position
from fleet.model.suite import TensorFile, TensorLimits, TensorSample, TensorUse
from fleet.verify.tensors import PreparedSamples, judge_samples, packed, prepare, recorded

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "fleet" / "device" / "npu" / "fleet_ort.py"
MODELS = ("tiny-ort/tiny", "tiny-genai-pipeline/decoder", "tiny-genai-windowed/transformer_token")
VOCABULARY, CONTEXT = 480, 64
SAMPLES, FEW, PROBES = VOCABULARY, 8, 64
Feed = dict[str, NDArray[Any]]


def feed(model: Path, seed: list[int], index: int | None = None) -> Feed:
    """Return random inputs over the whole range of their types. An input of one token or position
    is `index`, or random without one.
    """
    rng, found = np.random.default_rng(seed), Feed()
    for end in onnx.load(model, load_external_data=False).graph.input:
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(end.type.tensor_type.elem_type))
        shape = [part.dim_value for part in end.type.tensor_type.shape.dim]
        if kind.kind == "f":
            found[end.name] = rng.random(shape).astype(kind)
        elif kind.itemsize > 2:
            high = CONTEXT if end.name == "position_ids" else VOCABULARY
            value = rng.integers(0, high, shape) if index is None else np.full(shape, index % high)
            found[end.name] = value.astype(kind)
        else:
            found[end.name] = rng.integers(0, int(np.iinfo(kind).max) + 1, shape).astype(kind)
    return found


def run(site: Path, folder: Path, model: str, feeds: list[Feed]) -> bytes:
    """Return the outputs of each feed as an .npz; b"" if the binary is refused or crashes."""
    spec = {
        "model": model, "inputs": {}, "reference": {}, "dimensions": {}, "session": {},
        "profiling": "off", "seed": 0, "log": 4, "provider": {"backend_path": "libQnnHtp.so"},
    }  # fmt: skip
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "samples.npz").write_bytes(packed(feeds))
    outputs = folder / "outputs.npz"
    outputs.unlink(missing_ok=True)
    argv = [sys.executable, "-I", str(SCRIPT), "--site", str(site), "--timeout", "240"]
    for name in ("spec.json", "outcome.json", "samples.npz", "outputs.npz"):
        argv += [f"--{name.partition('.')[0]}", str(folder / name)]
    env = {**os.environ, "LD_LIBRARY_PATH": str(site / "onnxruntime_qnn")}
    subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=False)
    return outputs.read_bytes() if outputs.is_file() else b""


def part(archive: bytes, first: int, last: int) -> bytes:
    """Return the outputs of some of the feeds, numbered from 0."""
    if not archive:
        return b""
    with np.load(io.BytesIO(archive)) as found:
        rows: list[Mapping[str, NDArray[Any]]] = [
            {k.partition("/")[2]: found[k] for k in found if k.startswith(f"{number}/")}
            for number in range(first, last)
        ]
    return packed(rows)


def same(one: bytes, other: bytes) -> bool:
    """Return True if two archives hold the same bytes in each tensor."""
    with np.load(io.BytesIO(one)) as a, np.load(io.BytesIO(other)) as b:
        return all(a[name].tobytes() == b[name].tobytes() for name in a)


def prepared(folder: Path, feeds: list[Feed], good: bytes) -> PreparedSamples:
    """Return `verify:` with the recorded reference, as a playbook gives it."""
    rows = []
    for number, given in enumerate(feeds):
        files = {}
        for name, value in given.items():
            np.save(folder / f"{number}-{name}.npy", value)
            files[name] = TensorFile(folder / f"{number}-{name}.npy")
        rows.append(TensorSample(str(number), files, {}, Position(folder, 1, 1)))
    use = TensorUse(tuple(rows), {"": TensorLimits(max_abs=0.0)}, record=True)
    kept = folder / "good.npz"
    kept.write_bytes(recorded(prepare(use, None, None), good))
    return prepare(TensorUse(tuple(rows), use.limits, kept), None, None)


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with one bit of one of them changed."""
    changed = bytearray(data)
    changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def main() -> None:
    """Print a line for each model, and the share that was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--binaries", type=int, default=100)
    args = parser.parse_args()
    total: Counter[str] = Counter()
    for place, name in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as work:
            folder, here = Path(work), ROOT / "assets" / Path(name).parent
            shutil.copytree(here, folder, dirs_exist_ok=True)
            model = Path(name).name + ".onnx"
            node = onnx.load(folder / model, load_external_data=False).graph.node[0]
            binary = (
                folder / next(a.s for a in node.attribute if a.name == "ep_cache_context").decode()
            )
            feeds = [feed(folder / model, [place, n], n) for n in range(SAMPLES)]
            feeds += [feed(folder / model, [place, SAMPLES + n]) for n in range(PROBES)]
            good = run(args.site.resolve(), folder, model, feeds)
            assert same(good, run(args.site.resolve(), folder, model, feeds)), "not deterministic"
            sets = {
                "found": (0, SAMPLES),
                f"found by {FEW} random samples": (SAMPLES, SAMPLES + FEW),
            }
            verify = {
                word: prepared(folder, feeds[slice(*ends)], part(good, *ends))
                for word, ends in sets.items()
            }
            data, count = binary.read_bytes(), Counter[str]()
            for number in range(
                args.binaries // len(MODELS) + (place < args.binaries % len(MODELS))
            ):
                binary.write_bytes(flipped(data, np.random.default_rng([place, number, 7])))
                got = run(args.site.resolve(), folder, model, feeds)
                if not got:
                    count["refused or crashed"] += 1
                    continue
                told = {
                    word: not judge_samples(verify[word], part(got, *ends)).holds
                    for word, ends in sets.items()
                }
                count["unchanged" if same(good, got) else "changed"] += 1
                count.update(word for word in told if told[word])
                assert not (any(told.values()) and same(good, got)), "an alarm without a change"
            print(f"{name}: {dict(count)}, emulated", flush=True)
            total += count
    print(f"{args.binaries} binaries: {dict(total)}, emulated")


if __name__ == "__main__":
    main()
