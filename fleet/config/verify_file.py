"""The shape of `verify:` in a playbook: samples for a network, and limits for its outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from fleet.config.problems import Problems, near_hint
from fleet.config.shape import Body
from fleet.config.suite_file import Gate
from fleet.config.values import After, Before, Doc, FilePath, Schema
from fleet.config.yamlpos import Document, Keys
from fleet.model.errors import InputError, SuiteError
from fleet.model.suite import PerplexityUse, TensorFile, TensorLimits, TensorSample, TensorUse

DTYPES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)


def _decibel(value: object) -> object:
    """Return the number of decibels in `30dB` or 30. Raises InputError."""
    text = value.lower().removesuffix("db").strip() if isinstance(value, str) else value
    try:
        number = float(text) if isinstance(text, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise InputError(f"'{value}' is not a number of decibels", hint="write it like 30dB")
    return number


def _finite(value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"the limit {value} is no number from 0 on", hint="write it like 0.05")
    return value


Limit = Annotated[float, After(_finite)]
Share = Annotated[float, Meta(ge=0, le=1)]
Decibel = Annotated[
    float, Before(_decibel), Schema({"anyOf": [{"type": "number"}, {"type": "string"}]})
]


class RawBody(Body, frozen=True, kw_only=True):
    """A raw file in the format that qnn-net-run reads."""

    file: Annotated[FilePath, Doc("The file, relative to the playbook.")]
    dtype: Annotated[Literal[DTYPES], Doc("Type of a value, such as float32.")]  # type: ignore[valid-type]
    shape: Annotated[list[Annotated[int, Meta(ge=1)]], Doc("Shape, such as [1, 3, 224, 224].")]


Tensor = FilePath | RawBody


class SampleBody(Body, frozen=True, kw_only=True):
    """A sample: input files, and the expected outputs."""

    name: Annotated[str | None, Doc("Name in results. Default: its number.")] = None
    inputs: Annotated[dict[str, Tensor] | None, Doc(
        "Input → .npy, FILE.npz:NAME, or a raw file. Not for runners whose `run:` names the inputs."
    )] = None  # fmt: skip
    expected: Annotated[dict[str, Tensor] | None, Doc("Output → file. Default: the reference.")] = (
        None
    )


class LimitsBody(Body, frozen=True, kw_only=True):
    """The largest allowed differences of an output."""

    max_abs: Annotated[Limit | None, Doc("Largest difference, in the unit of the output.")] = None
    mean_abs: Annotated[Limit | None, Doc("Mean difference, in the unit of the output.")] = None
    range: Annotated[
        Share | None, Doc("Largest difference, as a share of the range of the reference.")
    ] = None
    sqnr: Annotated[Decibel | None, Doc("Least signal-to-noise ratio, such as 30dB.")] = None
    cosine: Annotated[
        Annotated[float, Meta(ge=-1, le=1)] | None, Doc("Least cosine, such as 0.999.")
    ] = None
    top_k: Annotated[
        Annotated[int, Meta(ge=1)] | None, Doc("Compare the k largest entries of the last axis.")
    ] = None
    top_share: Annotated[Share, Doc("Least share of these entries that agrees.")] = 1.0


class PerplexityBody(Body, frozen=True, kw_only=True):
    """The perplexity of a language model over all samples."""

    output: Annotated[str, Doc("Output with a row of logits for each token.")] = "logits"
    tokens: Annotated[str, Doc("Input with the token ids.")] = "input_ids"
    at_most: Annotated[
        Annotated[float, Meta(ge=1)] | None, Doc("Largest allowed value. Default: no limit.")
    ] = None


class VerifyBody(Body, frozen=True, kw_only=True):
    """Samples for a network, and limits for its outputs."""

    samples: Annotated[list[SampleBody], Doc("Inputs with the outputs that they should give.")]
    reference: Annotated[
        FilePath | None,
        Doc(
            "ONNX model that gives the expected outputs, on the CPU of this workstation; or an "
            ".npz that `fleet verify` wrote with --record."
        ),
    ] = None
    limits: Annotated[LimitsBody | None, Doc("Limits for all outputs.")] = None
    outputs: Annotated[dict[str, LimitsBody] | None, Doc("Limits for single outputs.")] = None
    perplexity: Annotated[PerplexityBody | None, Doc("Also compute the perplexity.")] = None
    gate: Annotated[Gate, Doc("When a deploy runs the samples: as in `suite:`.")] = "health"


def tensor_use(body: VerifyBody, document: Document, problems: Problems) -> TensorUse:
    """Return `verify:` of a playbook; its errors go to `problems`."""
    reader = _Reader(document, problems)
    if not body.samples:
        hint = "write `- inputs: {x: x.npy}`"
        reader.add(("verify", "samples"), "`verify:` has no samples", hint)
    samples = tuple(reader.sample(row, number) for number, row in enumerate(body.samples))
    names = [sample.name for sample in samples]
    for number, name in enumerate(names):
        if name in names[:number]:
            reader.add(("verify", "samples", number), f"two samples are called '{name}'", "rename")
    limits = {"": _limits(body.limits)} if body.limits else {}
    limits |= {name: _limits(each) for name, each in (body.outputs or {}).items()}
    reference = None
    if body.reference is not None:
        reference = reader.path(body.reference, ("verify", "reference"))
    wanted = body.perplexity
    use = PerplexityUse(wanted.output, wanted.tokens, wanted.at_most) if wanted else None
    return TensorUse(samples, limits, reference, body.gate, perplexity=use)


def _limits(body: LimitsBody) -> TensorLimits:
    return TensorLimits(
        body.max_abs, body.mean_abs, body.range, body.sqnr, body.cosine, body.top_k, body.top_share
    )


class _Reader:
    def __init__(self, document: Document, problems: Problems) -> None:
        self._document, self._problems = document, problems
        self._folder = document.file.absolute().parent

    def add(self, keys: Keys, message: str, hint: str) -> None:
        error = SuiteError(message, position=self._document.value(keys), hint=hint)
        self._problems.take(error, self._document.value(keys))

    def path(self, text: str, keys: Keys) -> Path:
        file = self._folder / Path(text).expanduser()
        if not file.is_file():
            self.add(keys, f"the file {file} does not exist", near_hint(file))
        return file

    def sample(self, row: SampleBody, number: int) -> TensorSample:
        keys: Keys = ("verify", "samples", number)
        if not row.inputs and (row.inputs is not None or not row.expected):
            self.add(keys, "the sample has no inputs", "write `inputs: {x: x.npy}`")
        inputs = self._files(row.inputs or {}, (*keys, "inputs"))
        expected = self._files(row.expected or {}, (*keys, "expected"))
        name = row.name or str(number + 1)
        return TensorSample(name, inputs, expected, self._document.value(keys))

    def _files(self, rows: Mapping[str, str | RawBody], keys: Keys) -> dict[str, TensorFile]:
        files = {}
        for name, row in rows.items():
            if isinstance(row, str):
                file, colon, member = row.rpartition(":") if ".npz:" in row else (row, "", "")
                files[name] = TensorFile(self.path(file if colon else row, (*keys, name)), member)
            else:
                path = self.path(row.file, (*keys, name, "file"))
                files[name] = TensorFile(path, "", row.dtype, tuple(row.shape))
        return files
