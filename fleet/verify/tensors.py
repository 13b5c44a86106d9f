"""Comparison of tensors with their references: files, measures of difference, limits.

The default limits follow from the scale of the output. A step of b bits over the range of a tensor
gives a signal-to-noise ratio of 6.02 b + 1.76 dB (Bennett, Bell System Technical Journal 27, 1948):
50 dB for 8 bits. The noise of n quantised layers adds up to 50 - 10 log10(n) dB, which is 30 dB for
100 layers. 10 dB are left for layers that amplify, so the limit of the ratio is 20 dB.

The limit of the largest difference is a quarter of the range. A saturated or swapped channel
exceeds this limit. The tail of the noise at 20 dB (RMS 1/35 of the range of a uniform signal) does
not exceed it. Integer tensors (token ids, classes) have to be equal.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.model.errors import InputError, Position, SuiteError, reason
from fleet.model.extras import loaded
from fleet.model.suite import (
    SAMPLES,
    PerplexityUse,
    SuiteAnswer,
    SuiteResult,
    TensorFile,
    TensorLimits,
    TensorUse,
)

DEFAULT_SQNR_DB = 20.0
DEFAULT_RANGE_SHARE = 0.25
_NUMBERS = "biuf"  # kinds of numpy types
_BLOCK = 1 << 14  # values compared at once, so that the copies in float64 stay in the cache
Array = NDArray[Any]


@dataclass(frozen=True)
class TensorDifference:
    """The difference between a tensor and its reference.

    `sqnr_db` is inf for equal tensors. `span` is the range of the reference, with which a user
    compares `max_abs`.
    """

    name: str
    max_abs: float
    mean_abs: float
    sqnr_db: float
    cosine: float
    span: float
    not_finite: int = 0
    faults: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The measures as a text: `y: max 0.012 of a range of 3.1, SQNR 34.2 dB, cosine 0.9998`."""
        if math.isinf(self.sqnr_db):
            return f"{self.name}: equal"
        return (
            f"{self.name}: max {self.max_abs:.3g} of a range of {self.span:.3g}, "
            f"SQNR {self.sqnr_db:.1f} dB, cosine {self.cosine:.4f}"
        )


def difference(name: str, wanted: Array, actual: Array, limits: TensorLimits) -> TensorDifference:
    """Compare a tensor with its reference.

    Values that are not finite are a fault, and are left out of the measures. Raises SuiteError for
    another shape, and for a type that is not numeric.
    """
    for array in (actual, wanted):
        if array.dtype.kind not in _NUMBERS:
            raise SuiteError(
                f"the output {name} has the type {array.dtype}, which is no number",
                hint="compare outputs of integers or floats",
            )
    if wanted.shape != actual.shape:
        raise SuiteError(
            f"the output {name} has the shape {list(actual.shape)}, its reference "
            f"{list(wanted.shape)}",
            hint="make the reference with the same model and inputs",
        )
    pair = wanted.ravel(), actual.ravel()
    starts = range(0, max(1, wanted.size), _BLOCK)
    rows = np.array([_measured(*(each[at : at + _BLOCK] for each in pair)) for at in starts])
    signal, noise, power, product, total, lost = map(float, rows[:, :6].sum(0))
    norms = math.sqrt(signal) * math.sqrt(power)
    made = TensorDifference(
        name,
        max_abs=float(rows[:, 6].max()),
        mean_abs=total / max(1, wanted.size),
        sqnr_db=_decibel(signal, noise),
        cosine=product / norms if norms else float(not noise),
        span=float(rows[:, 7].max() + rows[:, 8].max()) if wanted.size else 0.0,
        not_finite=int(lost),
    )
    faults = tuple(_faults(made, wanted, actual, limits))
    return replace(made, faults=faults)


@np.errstate(over="ignore", invalid="ignore")
def _measured(wanted: Array, actual: Array) -> tuple[float, ...]:
    """Return nine measures of a block.

    The first six are sums: the squares of the reference, of the error and of the values; the
    products; the absolute errors; the number of values that are not finite. The others are the
    largest error, the largest reference and the largest negative reference.
    """
    a, b = wanted.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():
        a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    gap = np.abs(a - b)
    sums = (float(np.sum(each)) for each in (a * a, gap * gap, b * b, a * b, gap, ~finite))
    return (*sums, *(float(np.max(each, initial=-math.inf)) for each in (gap, a, -a)))


def _decibel(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _faults(
    made: TensorDifference, wanted: Array, actual: Array, limits: TensorLimits
) -> list[str]:
    if made.not_finite:
        return [f"{made.name} has {made.not_finite} values that are NaN or infinite"]
    if limits.empty:
        if np.issubdtype(wanted.dtype, np.integer) or wanted.dtype == np.bool_:
            limits = TensorLimits(max_abs=0.0)
        else:
            limits = TensorLimits(sqnr_db=DEFAULT_SQNR_DB, range=DEFAULT_RANGE_SHARE)
    share = made.max_abs / made.span if made.span else math.inf if made.max_abs else 0.0
    upper = (
        ("the largest difference", made.max_abs, limits.max_abs),
        ("the mean difference", made.mean_abs, limits.mean_abs),
        ("the largest difference, as a share of the range,", share, limits.range),
    )
    lower = (
        ("the SQNR in dB", made.sqnr_db, limits.sqnr_db),
        ("the cosine", made.cosine, limits.cosine),
    )
    faults = [f"{what} of {made.name} is {value:.4g}, the limit is {limit:g}"
              for what, value, limit in upper if limit is not None and value > limit]  # fmt: skip
    faults += [f"{what} of {made.name} is {value:.4g}, at least {limit:g} is needed"
               for what, value, limit in lower if limit is not None and value < limit]  # fmt: skip
    if limits.top_k is not None:
        share = top_agreement(wanted, actual, limits.top_k)
        if share < limits.top_share:
            faults.append(
                f"the top {limits.top_k} of {made.name} agree in {share:.0%}, "
                f"{limits.top_share:.0%} are needed"
            )
    return faults


def top_agreement(wanted: Array, actual: Array, k: int) -> float:
    """Return the mean share of the k largest entries of the last axis that both tensors have."""
    both = [np.atleast_1d(each.astype(np.float64)) for each in (wanted, actual)]
    rows = [each.reshape(-1, each.shape[-1]) for each in both]
    k = min(k, rows[0].shape[-1])
    tops = [np.argsort(-each, axis=-1, kind="stable")[:, :k] for each in rows]
    shared = [len(set(left) & set(right)) for left, right in zip(*tops, strict=True)]
    return sum(shared) / (k * len(shared)) if shared else 1.0


# Samples, which are read and checked before fleet sends any data


@dataclass(frozen=True)
class PreparedSamples:
    """Samples ready to send. `archive` is an .npz with a member `NUMBER/tensor` for each input."""

    names: tuple[str, ...]
    archive: bytes
    expected: tuple[Mapping[str, Array], ...]
    limits: Mapping[str, TensorLimits]
    sha256: str
    inputs_sha256: str = ""
    perplexity: PerplexityUse | None = None

    def inputs(self, number: int) -> dict[str, Array]:
        """Return the inputs of a sample by name."""
        return _of_sample(arrays_of(self.archive)[0], number)


def _of_sample(arrays: Mapping[str, Array], number: int) -> dict[str, Array]:
    mine = f"{number}/"
    return {name[len(mine) :]: v for name, v in arrays.items() if name.startswith(mine)}


def packed(inputs: Iterable[Mapping[str, Array]]) -> bytes:
    """Return an .npz with a member `NUMBER/tensor` for each tensor of each sample."""
    rows = enumerate(inputs)
    return packed_named({f"{number}/{name}": v for number, row in rows for name, v in row.items()})


def packed_named(arrays: Mapping[str, Array]) -> bytes:
    """Return an .npz of these arrays."""
    buffer = io.BytesIO()
    write: Callable[..., None] = np.savez
    write(buffer, **arrays)
    return buffer.getvalue()


def arrays_of(archive: bytes) -> tuple[dict[str, Array], str]:
    """Return the tensors of an .npz that a device made, and a message if the file is damaged.

    Never raises.
    """
    try:
        members = np.load(io.BytesIO(archive), allow_pickle=False) if archive else {}
        return {name: members[name] for name in members}, ""
    except Exception as error:  # noqa: BLE001 - numpy, zip and zlib raise many types
        return {}, f"the outputs are damaged: {reason(error)}"


Ends = Mapping[str, tuple[str, tuple[int | str, ...]]]  # tensor → type and shape


def prepare(use: TensorUse, inputs: Ends | None, outputs: Ends | None) -> PreparedSamples:
    """Read all samples and compare them with the inputs and outputs of the model.

    `inputs` and `outputs` are None if the tensors of the model are not known. Raises SuiteError
    with the position of the sample.
    """
    fed, expected = list[dict[str, Array]](), list[Mapping[str, Array]]()
    for sample in use.samples:
        given = {name: _tensor(file, sample.position) for name, file in sample.inputs.items()}
        wanted = {name: _tensor(file, sample.position) for name, file in sample.expected.items()}
        if inputs is None and not given:
            raise SuiteError("the sample has no inputs", position=sample.position,
                             hint="write `inputs: {x: x.npy}`")  # fmt: skip
        _fit(given, inputs, "input", sample.position, whole=True)
        _fit(wanted, outputs, "output", sample.position, whole=False)
        fed.append(given)
        if use.perplexity is not None and use.perplexity.tokens not in given:
            raise SuiteError(
                f"sample {sample.name} has no input {use.perplexity.tokens} with the tokens of the "
                "perplexity",
                position=sample.position,
                hint="add the input to the sample, or write its name as `perplexity: {tokens: x}`",
            )
        if not wanted and use.reference is None and not (use.record or use.perplexity):
            raise SuiteError(
                f"sample {sample.name} has no expected outputs, and `verify:` has no reference",
                position=sample.position,
                hint="add `expected:` to the sample, or `reference: model.onnx` under `verify:`; "
                "or record outputs: fleet verify --record FILE.npz, then `reference: FILE.npz`",
            )
        expected.append(wanted)
    if use.reference is not None and not all(expected):
        kept = _recorded(use.reference, fed)
        run = None if kept else Reference(use.reference)
        for n, sample in enumerate(use.samples):
            if not expected[n]:
                right = run.outputs(fed[n], sample.position) if run else _of_sample(kept, n)
                expected[n] = right
    names = tuple(sample.name for sample in use.samples)
    digest = _digest(fed)
    whole = hashlib.sha256((digest + _digest(expected)).encode()).hexdigest()
    return PreparedSamples(
        names, packed(fed), tuple(expected), use.limits, whole, digest, use.perplexity
    )


def _digest(rows: Iterable[Mapping[str, Array]]) -> str:
    digest = hashlib.sha256()
    for name, value in (part for row in rows for part in row.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


_INPUTS = "inputs"  # the member of recorded outputs with the digest of the inputs


def recorded(prepared: PreparedSamples, archive: bytes) -> bytes:
    """Return the outputs of a device with the digest of their inputs, as a later reference.

    Damaged outputs are returned unchanged.
    """
    arrays, damage = arrays_of(archive)
    if damage:
        return archive
    return packed_named({**arrays, _INPUTS: np.array(prepared.inputs_sha256)})


def _recorded(path: Path, fed: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
    """Return the recorded outputs of samples, or {} if `path` is a model.

    Raises SuiteError if the outputs were recorded with other inputs.
    """
    if path.suffix != ".npz":
        return {}
    kept = load(path)
    if str(kept.get(_INPUTS)) != _digest(fed):
        raise SuiteError(
            f"{path} was not recorded with the inputs of these samples",
            hint="record it again: fleet verify --record FILE.npz (on a device with right answers)",
        )
    return kept


# A key of the session options of ONNX Runtime (onnxruntime_session_options_config_keys.h)
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
_UNCOMPILED = "name the model before it was compiled, in ONNX"
_Runs = tuple[Callable[[dict[str, Array]], list[Array]], list[str], list[str]]


class Reference:
    """A model on the CPU of this workstation.

    ONNX Runtime runs the model if it is installed. Otherwise the evaluator of the ONNX package runs
    it, which is slower.
    """

    def __init__(self, path: Path, model: bytes | None = None) -> None:
        """Load the model from `path`.

        `model` replaces the content of the file; the weights next to the file are still those of
        `path`.
        """
        self._path = path
        self._model = model
        try:
            self._run, self.inputs, self.names = self._onnxruntime()
        except ImportError:
            self._run, self.inputs, self.names = self._evaluator()

    def _onnxruntime(self) -> _Runs:
        ort: Any = importlib.import_module("onnxruntime")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # Fused nodes round differently from the device, which runs each node by itself.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        folder = str(self._path.parent)
        options.add_session_config_entry(EXTERNAL_FOLDER, folder)
        with self._guarded():
            given = str(self._path) if self._model is None else self._model
            session = ort.InferenceSession(given, options, ["CPUExecutionProvider"])
        ends = [[e.name for e in each] for each in (session.get_inputs(), session.get_outputs())]
        return partial(session.run, None), ends[0], ends[1]

    def _evaluator(self) -> _Runs:
        onnx = loaded("onnx", "onnx", "a reference on this workstation")
        evaluator: Any = importlib.import_module("onnx.reference").ReferenceEvaluator
        with self._guarded(f"pip install onnxruntime (knows more operators); or {_UNCOMPILED}"):
            model: Any = str(self._path)
            if self._model is not None:
                model = onnx.load_from_string(self._model)
                onnx.load_external_data_for_model(model, str(self._path.parent))
            session = evaluator(model)
        return partial(session.run, None), list(session.input_names), list(session.output_names)

    @contextmanager
    def _guarded(self, hint: str = _UNCOMPILED) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # both have their own exceptions
            raise SuiteError(
                f"the reference {self._path} cannot be run here: {reason(error)}",
                hint=hint,
            ) from error

    def outputs(
        self, inputs: Mapping[str, Array], position: Position | None = None
    ) -> dict[str, Array]:
        """Return all outputs by name. Raises SuiteError with the position of the sample."""
        try:
            values = self._run(dict(inputs))
        except Exception as error:  # both have their own exceptions
            raise SuiteError(
                f"the reference {self._path.name} does not take this sample: {reason(error)}",
                position=position,
                hint="correct the inputs of the sample, or name another model",
            ) from error
        return dict(zip(self.names, values, strict=True))


def _tensor(file: TensorFile, position: Position) -> Array:
    try:
        members = load(file.path, file.dtype, file.shape)
        if file.member not in members:
            raise SuiteError(
                f"{file.path} has no tensor '{file.member}', only {', '.join(members)}",
                hint="write FILE.npz:NAME with one of these names",
            )
        value = members[file.member]
        bad = 0 if value.dtype.kind in "biu" else int(np.sum(~np.isfinite(value)))
        if bad:
            raise SuiteError(
                f"{file.path}: {file.member or 'the tensor'} has {bad} values that are NaN or "
                "infinite",
                hint="write the file again without such values",
            )
    except SuiteError as error:
        error.position = error.position or position
        raise
    return value


def _fit(
    given: Mapping[str, Array], ends: Ends | None, kind: str, position: Position, *, whole: bool
) -> None:
    """Raise SuiteError for a tensor that the model does not have, or (`whole`) that is missing.

    Type and shape are compared, too.
    """
    if ends is None:
        return
    lost = sorted(ends.keys() - given.keys()) if whole else []
    more = sorted(given.keys() - ends.keys())
    if lost or more:
        message = f"the model has no {kind} {more[0]}" if more else f"{kind} {lost[0]} is missing"
        hint = f"the {kind}s of the model are: {', '.join(ends)}"
        raise SuiteError(message, position=position, hint=hint)
    for name, value in given.items():
        dtype, shape = ends[name]
        fits = len(shape) == value.ndim and all(
            isinstance(want, str) or want == have
            for want, have in zip(shape, value.shape, strict=False)
        )
        known = dtype.removeprefix("tensor(").removesuffix(")")
        known = {"float": "float32", "double": "float64"}.get(known, known)
        if not fits or (known and str(value.dtype) != known):
            raise SuiteError(
                f"the {kind} {name} is {value.dtype} {list(value.shape)}; the model has {known} "
                f"{list(shape)}",
                position=position,
                hint=f"write the file as {known} {list(shape)}",
            )


@np.errstate(over="ignore", invalid="ignore")
def surprise(logits: Array, tokens: Array) -> Array:
    """Return the negative natural logarithm of the probability of each token after the first one.

    `logits` has the shape of `tokens` (batch, length) and then an axis for the vocabulary. The row
    of a token predicts the next token. Raises ValueError and IndexError if the two do not fit.
    """
    size = tokens.shape[-1]
    if logits.dtype.kind not in _NUMBERS:
        raise ValueError
    rows = logits.reshape(-1, size, logits.shape[-1])[:, :-1].reshape(-1, logits.shape[-1])
    ids = tokens.reshape(-1, size)[:, 1:].ravel().astype(np.uint64)  # no id counts from the end
    costs = []
    for row, token in zip(rows, ids, strict=True):
        scaled = row.astype(np.float64) - row.max()
        costs.append(math.log(np.exp(scaled).sum()) - float(scaled[token]))
    return np.array(costs)


def perplexity(prepared: PreparedSamples, archive: bytes) -> float | None:
    """Return exp of the mean of `surprise` over all tokens of all samples, from a device's .npz.

    Returns None if it was not requested, or if the outputs are not logits of the tokens.
    """
    use = prepared.perplexity
    if use is None:
        return None
    outputs, inputs = arrays_of(archive)[0], arrays_of(prepared.archive)[0]
    places = range(len(prepared.names))
    try:
        costs = np.concatenate(
            [surprise(outputs[f"{n}/{use.output}"], inputs[f"{n}/{use.tokens}"]) for n in places]
        )
    except (KeyError, ValueError, IndexError, TypeError):
        return None
    mean = float(costs.mean()) if costs.size else math.inf
    return math.exp(mean) if mean < math.log(sys.float_info.max) else None


def judge_samples(
    prepared: PreparedSamples, archive: bytes, fault: str = "", measured: float | None = None
) -> SuiteResult:
    """Return the result of the samples, with an answer for each sample, from the device's .npz.

    `fault` is the reason why the run failed, for samples without outputs. `measured` is the
    perplexity: beyond its limit, no sample passes. Nothing that a device wrote raises an error.
    """
    confused = _confused(prepared.perplexity, measured)
    arrays, damage = arrays_of(archive)
    fault = fault or damage
    answers = []
    for number, (name, wanted) in enumerate(zip(prepared.names, prepared.expected, strict=True)):
        own = _of_sample(arrays, number)
        texts, faults = [], [] if wanted or own else [fault or "no answer: no output came back"]
        for tensor, value in (wanted or own).items():
            got = own.get(tensor)
            if got is None:
                faults.append(fault or f"no answer: the device gave no output {tensor}")
                continue
            limits = prepared.limits.get(tensor, prepared.limits.get("", TensorLimits()))
            try:
                measures = difference(tensor, value, got, limits)
            except InputError as error:
                faults.append(error.message)
                continue
            bytes_of = hashlib.sha256(np.ascontiguousarray(got).data).hexdigest()
            text = measures.text if wanted else f"{tensor}: recorded"
            texts.append(f"{text} [{bytes_of[:12]}]")
            faults += measures.faults
        faults += confused
        answers.append(SuiteAnswer(name, "; ".join(texts), faults=tuple(dict.fromkeys(faults))))
    count = len(prepared.names)
    return SuiteResult(SAMPLES, prepared.sha256, count, count, tuple(answers))


def _confused(use: PerplexityUse | None, measured: float | None) -> list[str]:
    """Return the fault of a perplexity that is unknown or above its limit."""
    if use is None:
        return []
    if measured is None:
        rows = f"{use.output} has no row of logits for each token of {use.tokens}"
        return [f"the perplexity is unknown: {rows}"]
    if use.at_most is not None and measured > use.at_most:
        return [f"the perplexity over all samples is {measured:.4g}, the limit is {use.at_most:g}"]
    return []


def outputs_in(expected: Sequence[Mapping[str, Array]], files: Mapping[str, bytes]) -> bytes:
    """Return an .npz of `NUMBER/output` from the files that a run left. Never raises.

    An output has the name of its file, with or without folders. A raw file has the type and the
    shape of its reference. A raw file of another size is returned as bytes in one dimension.
    """
    outputs: dict[str, Array] = {}
    for number, row in enumerate(expected):
        for name, wanted in row.items():
            same = [file for file in files if f"/{file}".endswith(f"/{name}")]
            if len(same) != 1:
                continue
            data = files[same[0]]
            if name.endswith(".npy"):
                with suppress(ValueError, EOFError, OSError):
                    outputs[f"{number}/{name}"] = np.load(io.BytesIO(data), allow_pickle=False)
                continue
            fits = len(data) == wanted.nbytes
            raw = np.frombuffer(data, wanted.dtype if fits else np.uint8)
            outputs[f"{number}/{name}"] = raw.reshape(wanted.shape) if fits else raw
    return packed_named(outputs)


def load(path: Path, dtype: str = "", shape: tuple[int, ...] = ()) -> Mapping[str, Array]:
    """Return the tensors of a .npy file (with the name ""), .npz file or raw file.

    A raw file needs `dtype` and `shape`. Raises SuiteError for a file that cannot be read, contains
    other types, or has another size.
    """
    try:
        if path.suffix in {".npy", ".npz"}:
            content = np.load(path, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return {"": content}
            return {name: content[name] for name in content.files}
        data = path.read_bytes()
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SuiteError(
            f"cannot read the tensor file {path}: {reason(error)}",
            hint="write it with numpy.save, numpy.savez, or tofile with dtype and shape",
        ) from error
    if not dtype:
        raise SuiteError(
            f"{path} is a raw file, so fleet needs its type and shape",
            hint="write {file: x.raw, dtype: float32, shape: [1, 64]}",
        )
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if len(data) != size:
        raise SuiteError(
            f"{path} has {len(data)} bytes, but {dtype} {list(shape)} needs {size}",
            hint="correct dtype or shape, or write the file again",
        )
    return {"": np.frombuffer(data, dtype).reshape(shape)}
