"""A suite of prompts with checks, and the answers of a device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from fleet.model.errors import Position
from fleet.model.plain import Number

EMPTY, NOT_UTF8, REPETITION, NO_STOP = "empty", "not-utf8", "repetition", "no-stop"
DETECTORS = (EMPTY, NOT_UTF8, REPETITION, NO_STOP)
DEFAULT_ANSWER_TOKENS = 256
SAMPLES = "(samples)"  # the name of a result of tensors, which no suite can have


@dataclass(frozen=True)
class AnswerCheck:
    """An expectation. `kind` is a key of `expect:`, `value` its checked value."""

    kind: str
    value: Any
    ignore_case: bool = False


@dataclass(frozen=True)
class SuiteQuestion:
    """A prompt of a suite, ready for the model: text, or token ids.

    `detect` names the detectors that apply to its answer.
    """

    name: str
    prompt: str = ""
    tokens: tuple[int, ...] = ()
    max_tokens: int = DEFAULT_ANSWER_TOKENS
    checks: tuple[AnswerCheck, ...] = ()
    detect: tuple[str, ...] = DETECTORS


@dataclass(frozen=True)
class Suite:
    """The questions for a language model. `sha256` identifies them and their checks.

    `at_least` is the number of answers that have to pass. `differ`: different prompts should give
    different answers. `greedy`: the runner takes the most likely token, if it supports that.
    """

    name: str
    questions: tuple[SuiteQuestion, ...]
    at_least: int
    sha256: str
    differ: bool = False
    greedy: bool = True


class SuiteAnswer(Struct, frozen=True):
    """The answer to one question. `faults` says why it does not pass.

    `thought` is the text between <think> and </think>, which is not part of the checked `text`.
    """

    name: Annotated[str, Meta(description="Name of the prompt.")]
    text: Annotated[str, Meta(description="The answer without its thought.")] = ""
    thought: Annotated[str, Meta(description="Text between <think> and </think>.")] = ""
    faults: Annotated[
        tuple[str, ...], Meta(description="Why the answer does not pass; empty where it does.")
    ] = ()
    finish: Annotated[
        str | None, Meta(description="eos, token-limit, or null where it is not known.")
    ] = None
    generated_tokens: Annotated[int | None, Meta(description="Tokens of the answer.")] = None
    seconds: Annotated[Number | None, Meta(description="Time of the answer.")] = None

    @property
    def passed(self) -> bool:
        """True if every check and detector passes."""
        return not self.faults


EQUAL_DB = 200.0  # the SQNR of equal tensors; float32 itself has 150


class NodeDifference(Struct, frozen=True):
    """A node of a network on a device, compared with the reference.

    SQNR is in dB, EQUAL_DB for equal tensors, and unknown if a previous node has another shape.
    Values with `own_` are computed from the inputs that the node had on the device, and so exclude
    the errors of previous nodes.
    """

    node: Annotated[str, Meta(description="Name of the node.")]
    kind: Annotated[str, Meta(description="Operator.")]
    tensor: Annotated[str, Meta(description="Name of its output.")]
    shape: Annotated[tuple[int, ...], Meta(description="Shape on the device.")]
    encoding: Annotated[str, Meta(description="Type, scale and zero point on the device.")]
    reference_encoding: Annotated[
        str | None, Meta(description="The same in the reference, where it is another.")
    ] = None
    before_db: Annotated[
        Number | None, Meta(description="SQNR in dB of the worst input; 200: equal.")
    ] = None
    after_db: Annotated[Number | None, Meta(description="SQNR in dB of the output.")] = None
    own_db: Annotated[
        Number | None, Meta(description="SQNR in dB of the node alone: from the same inputs.")
    ] = None
    own_steps: Annotated[
        Number | None,
        Meta(description="Its largest difference, in steps of 8 bits over its range."),
    ] = None
    fault: Annotated[str, Meta(description="Why the node is wrong; empty if it is not.")] = ""


class SuiteResult(Struct, frozen=True):
    """The answers of one device to a suite. `asked` is the number of questions."""

    name: Annotated[str, Meta(description="Name of the suite.")]
    sha256: Annotated[str, Meta(description="Identity of its prompts and checks.")]
    asked: Annotated[int, Meta(description="Number of prompts.")]
    at_least: Annotated[int, Meta(description="Prompts that have to pass.")]
    answers: Annotated[
        tuple[SuiteAnswer, ...], Meta(description="The answers, in the order of the prompts.")
    ] = ()
    nodes: Annotated[
        tuple[NodeDifference, ...],
        Meta(description="The nodes of the network, where they were compared."),
    ] = ()
    PLAIN: ClassVar[str] = "* passed holds pass_rate:6 pass_rate_low:6 pass_rate_high:6"

    @property
    def passed(self) -> int:
        """The number of answers that pass."""
        return sum(answer.passed for answer in self.answers)

    @property
    def holds(self) -> bool:
        """True if enough answers pass."""
        return self.passed >= self.at_least

    @property
    def failing(self) -> tuple[SuiteAnswer, ...]:
        """The answers that do not pass."""
        return tuple(answer for answer in self.answers if not answer.passed)

    @property
    def shown(self) -> str:
        """The result for people: `18 of 20 prompts`."""
        what = "samples" if self.name == SAMPLES else "prompts"
        return f"{self.passed} of {self.asked} {what}"

    @property
    def title(self) -> str:
        """`the suite tiny`, or `verify:` for tensors."""
        return "`verify:`" if self.name == SAMPLES else f"the suite {self.name}"

    @property
    def first_wrong(self) -> int | None:
        """The index of the first wrong node from 0, None if all are right."""
        return next((number for number, row in enumerate(self.nodes) if row.fault), None)

    def telling(self, most: int) -> list[int]:
        """Return the indexes of the nodes around the first wrong one.

        Without a wrong node, return those with the largest difference of their own.
        """
        wrong = self.first_wrong
        order = sorted(range(len(self.nodes)), key=lambda place: (
            -(self.nodes[place].own_steps or 0.0) if wrong is None else abs(place - wrong)
        ))  # fmt: skip
        return sorted(order[:most])

    @property
    def begins(self) -> str:
        """The first difference in the network, as a sentence; "" if its nodes were not compared."""
        if not self.nodes:
            return ""
        if self.first_wrong is None:
            text = f"all {len(self.nodes)} nodes give what they should from the inputs they have"
            return text if not self.failing else (
                f"{text}; the errors add up from node to node, or come from nodes that the device "
                "runs as one when their tensors are not outputs"
            )  # fmt: skip
        row = self.nodes[self.first_wrong]
        text = f"the first wrong node is {row.node} ({row.kind}): {row.fault}"
        text += f"; its encoding is {row.encoding}"
        return text + (f", in the reference {row.reference_encoding}"
                       if row.reference_encoding else "")  # fmt: skip

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the bounds of the pass rate at a confidence level, by Wilson's formula."""
        return rate_interval(self.passed, self.asked, level)

    @property
    def pass_rate(self) -> float | None:
        """The share of the prompts that pass, None if none was asked."""
        return self.passed / self.asked if self.asked else None

    @property
    def pass_rate_low(self) -> float:
        """The lower bound of the pass rate at the level of 95 %."""
        return self.interval()[0]

    @property
    def pass_rate_high(self) -> float:
        """The upper bound of the pass rate at the level of 95 %."""
        return self.interval()[1]


@dataclass(frozen=True)
class SuiteUse:
    """The `suite:` section of a playbook.

    `gate` is `health` (before the switch of a release), `run` (after it, with the first run), or
    `off` (only in `fleet verify`).
    """

    suite: Suite
    gate: str = "health"


@dataclass(frozen=True)
class TensorFile:
    """A tensor on this workstation: .npy, `member` of an .npz, or raw with type and shape."""

    path: Path
    member: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorSample:
    """Inputs of a network and the expected outputs, by tensor name."""

    name: str
    inputs: Mapping[str, TensorFile]
    expected: Mapping[str, TensorFile]
    position: Position


@dataclass(frozen=True)
class PerplexityUse:
    """The perplexity of a language model over all samples: the names of the output with the logits
    and of the input with the token ids, and the largest allowed value.
    """

    output: str = "logits"
    tokens: str = "input_ids"
    at_most: float | None = None


@dataclass(frozen=True)
class TensorUse:
    """The `verify:` section of a playbook.

    `limits` are by output, "" for all others. `reference` is a model that ONNX Runtime runs on this
    workstation, or an .npz of recorded outputs, for samples without expected outputs. With
    `record` a sample may have neither. `gate` is as in SuiteUse.
    """

    samples: tuple[TensorSample, ...]
    limits: Mapping[str, TensorLimits] = field(default_factory=dict)
    reference: Path | None = None
    gate: str = "health"
    record: bool = False
    perplexity: PerplexityUse | None = None


@dataclass(frozen=True)
class TensorLimits:
    """The allowed difference of a tensor.

    `max_abs` and `mean_abs` are in the unit of the output, `range` is a share of the reference's
    range. `top_share` is the least share of `top_k` that has to agree.
    """

    max_abs: float | None = None
    mean_abs: float | None = None
    range: float | None = None
    sqnr_db: float | None = None
    cosine: float | None = None
    top_k: int | None = None
    top_share: float = 1.0

    @property
    def empty(self) -> bool:
        """True if the user gave no limits; the defaults then apply."""
        return self == TensorLimits()


def rate_interval(passed: int, asked: int, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a share (Journal of the ASA 22, 1927).

    It keeps its level for few prompts. It also does so if none or all pass, where passed / asked
    plus and minus a standard error has no width. Returns (0, 1) if nothing was asked.
    """
    if not asked:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    rate, share = passed / asked, z * z / asked
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(rate * (1 - rate) / asked + share / (4 * asked))
    low = 0.0 if not passed else max(0.0, middle - half)
    high = 1.0 if passed == asked else min(1.0, middle + half)
    return low, high
