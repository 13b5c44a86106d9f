"""Checks and detectors for the answers of language models.

A check compares an answer with the expectation of its question. A detector needs no expectation: it
finds answers that no healthy model gives (docs/verify.md).
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from fleet.model.suite import (
    EMPTY,
    NO_STOP,
    NOT_UTF8,
    REPETITION,
    AnswerCheck,
    Suite,
    SuiteAnswer,
    SuiteQuestion,
    SuiteResult,
)

_SHOWN = 60  # characters of an answer in a message
_OPEN, _CLOSE = "<think>", "</think>"
_MINUS, _APOSTROPHE = "\u2212", "\u2019"
_NUMBER = re.compile(
    rf"[-+{_MINUS}]?\d(?:[\d,_'{_APOSTROPHE}]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?%)?"
)
_FENCE = re.compile(r"```[A-Za-z0-9_-]*\s*\n(.*?)```", re.DOTALL)
# The limits allow repeats that a right answer had: three columns of a table, a line of dashes.
_REPEATS, _REPEATED_CHARS, _REPEATED_SHARE = 5, 24, 0.5
_LONGEST_PERIOD = 200  # characters of the repeated part; longer ones are paragraphs
_MANY_WORDS, _DISTINCT_SHARE = 40, 0.15


def judge(question: SuiteQuestion, raw: SuiteAnswer) -> SuiteAnswer:
    """Return an answer with the thought split off and with its faults."""
    thought, text, open_thought = split_thought(raw.text)
    faults = list(raw.faults)
    if not faults:
        faults += _detected(question, raw.text, text, raw.finish)
        if open_thought and NO_STOP in question.detect:
            faults.append("thinking never ended: the answer has no </think>")
        faults += _unmet(question.checks, text, thought)
    return replace(raw, text=text, thought=thought, faults=tuple(dict.fromkeys(faults)))


def judge_suite(suite: Suite, answers: Sequence[SuiteAnswer]) -> SuiteResult:
    """Return the result of a suite. A missing answer does not pass."""
    given = {answer.name: answer for answer in answers}
    judged = [
        judge(question, given.get(question.name) or _missing(question))
        for question in suite.questions
    ]
    if suite.differ:
        judged = _constant(judged)
    return SuiteResult(
        suite.name, suite.sha256, len(suite.questions), suite.at_least, tuple(judged)
    )


def _missing(question: SuiteQuestion) -> SuiteAnswer:
    return SuiteAnswer(question.name, faults=("no answer: the program ended before this prompt",))


def _constant(answers: list[SuiteAnswer]) -> list[SuiteAnswer]:
    """Add a fault to every answer if all prompts of the suite got the same answer."""
    texts = {answer.text.strip() for answer in answers}
    if len(answers) < 2 or len(texts) > 1:
        return answers
    fault = f"same answer to all {len(answers)} prompts"
    return [replace(answer, faults=(*answer.faults, fault)) for answer in answers]


def unsteady(results: Sequence[tuple[str, SuiteResult]]) -> list[str]:
    """Return how results of the same suite differ from the first, as a sentence for each answer.

    Each result comes with its label, such as `repeat 2`. The list is empty if all results are
    equal.
    """
    if not results:
        return []
    label, first = results[0]
    wanted = {answer.name: answer.text for answer in first.answers}
    sentences = []
    for other, result in results[1:]:
        for answer in result.answers:
            text = wanted.get(answer.name, "")
            if answer.text != text:
                place = _first_difference(text, answer.text)
                sentences.append(f"{answer.name}: {other} differs from {label} {place}")
    return sentences


def _first_difference(one_text: str, other_text: str) -> str:
    """Return the place of the first difference: `from word 7 on`, or `in y` for tensors."""
    tensors = [dict(part.partition(": ")[::2] for part in text.split("; ") if ": " in part)
               for text in (one_text, other_text)]  # fmt: skip
    if one_text.endswith("]") and tensors[0].keys() == tensors[1].keys():
        return "in " + ", ".join(key for key in tensors[0] if tensors[0][key] != tensors[1][key])
    words = one_text.split(), other_text.split()
    same = 0
    while same < min(map(len, words)) and words[0][same] == words[1][same]:
        same += 1
    return f"from word {same + 1} on"


def split_thought(text: str) -> tuple[str, str, bool]:
    """Return the thought, the answer, and True if the thought never ends.

    The templates of some models open <think> in the prompt. The text then has only the end.
    """
    head, close, tail = text.rpartition(_CLOSE)
    if close:
        return head.replace(_OPEN, "", 1).strip(), tail.strip(), False
    before, opened, thought = text.partition(_OPEN)
    if opened:
        return thought.strip(), before.strip(), True
    return "", text.strip(), False


# Detectors


def _detected(question: SuiteQuestion, raw: str, text: str, finish: str | None) -> list[str]:
    faults: list[str] = []
    if EMPTY in question.detect and not text:
        faults.append("empty answer")
    if NOT_UTF8 in question.detect and "\ufffd" in raw:
        faults.append("not UTF-8: the answer contains bytes that are no text")
    if REPETITION in question.detect and (part := repeated(raw)):
        faults.append(f"repetition: {_quoted(part)} again and again")
    if NO_STOP in question.detect and finish == "token-limit":
        faults.append(f"no stop: the answer reached the limit of {question.max_tokens} tokens")
    return faults


def repeated(text: str) -> str:
    """Return the part that an answer repeats until its end, or "" for a healthy answer.

    Only the end is checked, because a model in a loop does not leave the loop. Lists and tables
    repeat too, but with other words in each line.
    """
    text = " ".join(text.split())
    for period in range(1, min(_LONGEST_PERIOD, len(text) // _REPEATS) + 1):
        length = _periodic_end(text, period)
        long = length >= max(_REPEATED_CHARS, period * _REPEATS)
        if long and length >= _REPEATED_SHARE * len(text):
            return text[-period:].strip() or text[-period:]
    words = text.lower().split()
    if len(words) >= _MANY_WORDS and len(set(words)) < _DISTINCT_SHARE * len(words):
        return max(set(words), key=words.count)
    return ""


def _periodic_end(text: str, period: int) -> int:
    """Return the number of characters at the end that repeat with this period."""
    index = len(text) - 1
    while index >= period and text[index] == text[index - period]:
        index -= 1
    return len(text) - 1 - index + period


# Checks


def _unmet(checks: Iterable[AnswerCheck], text: str, thought: str) -> list[str]:
    results = (_thinks(check, thought) if check.kind == "thinks" else
               _KINDS[check.kind](check, text) for check in checks)  # fmt: skip
    return [fault for fault in results if fault]


def _folded(check: AnswerCheck, text: str) -> str:
    return text.casefold() if check.ignore_case else text


def _exact(check: AnswerCheck, text: str) -> str:
    if any(_folded(check, text) == _folded(check, wanted.strip()) for wanted in check.value):
        return ""
    return f"exact: expected {_listed(check.value)}, got {_quoted(text)}"


def _contains(check: AnswerCheck, text: str) -> str:
    missing = [part for part in check.value if _folded(check, part) not in _folded(check, text)]
    return f"contains: {_listed(missing)} is missing in {_quoted(text)}" if missing else ""


def _lacks(check: AnswerCheck, text: str) -> str:
    there = [part for part in check.value if _folded(check, part) in _folded(check, text)]
    return f"lacks: the answer contains {_listed(there)}" if there else ""


def _regex(check: AnswerCheck, text: str) -> str:
    flags = re.DOTALL | (re.IGNORECASE if check.ignore_case else 0)
    if re.search(check.value, text, flags):
        return ""
    return f"regex: {check.value!r} does not match {_quoted(text)}"


def _number(check: AnswerCheck, text: str) -> str:
    wanted, tolerance = check.value
    numbers = numbers_in(text)
    if not numbers:
        return f"number: expected {wanted:g}, but {_quoted(text)} has no number"
    if abs(numbers[-1] - wanted) <= tolerance:
        return ""
    within = f" ± {tolerance:g}" if tolerance else ""
    return f"number: expected {wanted:g}{within}, the last number is {numbers[-1]:g}"


def numbers_in(text: str) -> list[float]:
    """Return the numbers of a text in order. 1,234.5 is a single number, and so is 12 %."""
    numbers = []
    for match in _NUMBER.findall(text):
        plain = re.sub(rf"[,_'{_APOSTROPHE}%\s]", "", match).replace(_MINUS, "-")
        value = float(plain)
        if math.isfinite(value):
            numbers.append(value)
    return numbers


def _choice(check: AnswerCheck, text: str) -> str:
    right, options = check.value
    words = "|".join(re.escape(word) for word in sorted(options, key=len, reverse=True))
    named = set(re.findall(rf"(?<!\w)({words})(?!\w)", text))
    announced = re.findall(rf"(?i:answer|choice|option)\W+(?:is\W+)?({words})(?!\w)", text)
    chosen = {announced[-1]} if announced else named
    if chosen == {right}:
        return ""
    return f"choice: expected {right}, got {_listed(sorted(chosen)) or _quoted(text)}"


def _length(check: AnswerCheck, text: str) -> str:
    for key, bound in check.value.items():
        side, _, unit = key.partition("_")
        size = {"words": len(text.split()), "chars": len(text), "lines": len(text.splitlines())}[
            unit
        ]
        if size < bound if side == "min" else size > bound:
            side = "at least" if side == "min" else "at most"
            return f"length: the answer has {size} {unit}, expected {side} {bound}"
    return ""


def _thinks(check: AnswerCheck, thought: str) -> str:
    if bool(thought) == check.value:
        return ""
    if check.value:
        return "thinks: the answer has no text between <think> and </think>"
    return f"thinks: the answer begins with a thought of {len(thought.split())} words"


def _json(check: AnswerCheck, text: str) -> str:
    try:
        value = json_in(text)
    except ValueError:
        return f"json: {_quoted(text)} is not valid JSON"
    for key, wanted in check.value.get("fields", {}).items():
        member, there = _field(value, key)
        if not there:
            return f"json: the field {key} is missing"
        if not same(member, wanted):
            return f"json: the field {key} is {_plain(member)}, expected {_plain(wanted)}"
    fault = unlike_schema(value, check.value["schema"]) if "schema" in check.value else ""
    return f"json: {fault}" if fault else ""


def json_in(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value of an answer: the whole text, or its only fenced block.

    Raises ValueError if there is no such value.
    """
    try:
        try:
            return json.loads(text)
        except ValueError:
            blocks = _FENCE.findall(text)
            if len(blocks) != 1:
                raise
            return json.loads(blocks[0])
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _field(value: object, path: str) -> tuple[object, bool]:
    """Return the member at `a.b.0` of a JSON value, and True if the member exists."""
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None, False
    return value, True


def same(actual: object, wanted: object) -> bool:
    """Return True for equal JSON values. 1 and 1.0 are equal; 1 and true are not equal."""
    if isinstance(actual, bool) or isinstance(wanted, bool):
        return actual is wanted
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(same(actual[k], wanted[k]) for k in actual)
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(same, actual, wanted))
    return actual == wanted


def _tool_call(check: AnswerCheck, text: str) -> str:
    name, arguments = check.value
    calls = calls_in(text)
    if not calls:
        return f"tool_call: {_quoted(text)} calls no tool"
    fault = _unlike_call(calls[0], name, arguments)
    if len(calls) > 1 and not fault:
        return f"tool_call: expected one call of {name}, got {len(calls)} calls"
    return f"tool_call: {fault}" if fault else ""


def _unlike_call(call: ToolCall, name: str, arguments: Mapping[str, Any] | None) -> str:
    if call.name != name:
        return f"expected a call of {name}, got {call.name}"
    for key, wanted in (arguments or {}).items():
        if key not in call.arguments:
            return f"the argument {key} is missing"
        if not same(call.arguments[key], wanted):
            return f"the argument {key} is {_plain(call.arguments[key])}, not {_plain(wanted)}"
    more = sorted(call.arguments.keys() - (arguments or {}).keys())
    return f"the argument {more[0]} is not expected" if arguments is not None and more else ""


_KINDS: dict[str, Callable[[AnswerCheck, str], str]] = {
    "exact": _exact,
    "contains": _contains,
    "lacks": _lacks,
    "regex": _regex,
    "number": _number,
    "choice": _choice,
    "length": _length,
    "json": _json,
    "tool_call": _tool_call,
}


# Tool calls, in the formats that models were trained on. Llama 3 writes {"name": ...,
# "parameters": {...}}. Qwen and Hermes write the same with `arguments` between <tool_call> tags,
# Mistral a list after [TOOL_CALLS], Nemotron a list between <TOOLCALL> tags, ToolACE Python calls.

_TAGGED = re.compile(
    r"<tool_call>(.*?)(?:</tool_call>|$)|<TOOLCALL>(.*?)(?:</TOOLCALL>|$)", re.DOTALL
)
_MISTRAL = re.compile(r"\[TOOL_CALLS\](.*)", re.DOTALL)
_LLAMA_TAG = "<|python_tag|>"
_MOST_CHARS = 1 << 16  # a longer answer is not a tool call


@dataclass(frozen=True)
class ToolCall:
    """A tool call: the name of the tool and its arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def calls_in(text: str) -> list[ToolCall]:
    """Return the tool calls of an answer in order. The list is empty if the text calls no tool."""
    text = text.strip()[:_MOST_CHARS].removeprefix(_LLAMA_TAG)
    tagged = ["".join(pair) for pair in _TAGGED.findall(text)]
    mistral = _MISTRAL.findall(text)
    parts = tagged or mistral or [*_FENCE.findall(text), text]
    for part in [parts] if tagged else [[part] for part in parts]:
        calls = [call for each in part for call in _calls(each.strip())]
        if calls:
            return calls
    return []


def _calls(text: str) -> Iterator[ToolCall]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield from _python_calls(text)
        return
    for item in value if isinstance(value, list) else [value]:
        call = _json_call(item)
        if call is not None:
            yield call


def _json_call(item: object) -> ToolCall | None:
    if not isinstance(item, dict):
        return None
    inner = item.get("function")
    if isinstance(inner, dict):
        item = inner
    name = item.get("name")
    arguments = item.get("arguments", item.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(name, arguments)


def _python_calls(text: str) -> Iterator[ToolCall]:
    """Parse Python calls: `[weather(city="Rome", days=2)]`, with or without brackets.

    The values are literals. Nothing is yielded for other code.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about an unknown escape in a string
            body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body.elts if isinstance(body, ast.List) else [body]:
        if not isinstance(node, ast.Call) or node.args:
            return
        try:
            arguments = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
        except (ValueError, TypeError, RecursionError):
            return
        if None in arguments:
            return
        yield ToolCall(
            ast.unparse(node.func), {str(key): value for key, value in arguments.items()}
        )


# JSON Schema, as far as answers need it

_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        value.is_integer()
        if isinstance(value, float)
        else isinstance(value, int) and not isinstance(value, bool)
    ),
}


def unlike_schema(value: object, schema: Mapping[str, Any], where: str = "the answer") -> str:
    """Return how a JSON value differs from a schema, or "" if the value fits.

    The reader of suites refuses keywords that are not supported.
    """
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        return f"{where} is {_plain(value)}, expected type {' or '.join(kinds)}"
    if "const" in schema and not same(value, schema["const"]):
        return f"{where} is {_plain(value)}, expected {_plain(schema['const'])}"
    if "enum" in schema and not any(same(value, each) for each in schema["enum"]):
        return f"{where} is {_plain(value)}, expected one of {_plain(schema['enum'])}"
    if isinstance(value, dict):
        return _unlike_object(value, schema, where)
    if isinstance(value, list):
        return _unlike_list(value, schema, where)
    return _out_of_bounds(value, schema, where)


def _unlike_object(value: Mapping[str, object], schema: Mapping[str, Any], where: str) -> str:
    known = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            return f"the field {key} is missing in {where}"
    for key, member in value.items():
        if key in known:
            fault = unlike_schema(member, known[key], key)
        else:
            refused = schema.get("additionalProperties") is False
            fault = f"the field {key} is not expected in {where}" if refused else ""
        if fault:
            return fault
    return ""


def _unlike_list(value: Sequence[object], schema: Mapping[str, Any], where: str) -> str:
    if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", math.inf):
        return f"{where} has {len(value)} items"
    faults = (
        unlike_schema(item, schema.get("items", {}), f"item {number + 1} of {where}")
        for number, item in enumerate(value)
    )
    return next((fault for fault in faults if fault), "")


def _out_of_bounds(value: object, schema: Mapping[str, Any], where: str) -> str:
    if isinstance(value, str):
        low, high, size = schema.get("minLength", 0), schema.get("maxLength", math.inf), len(value)
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return f"{where} does not match {schema['pattern']!r}"
        return "" if low <= size <= high else f"{where} has {size} characters"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        return "" if low <= value <= high else f"{where} is {value:g}"
    return ""


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:_SHOWN]


def _quoted(text: str) -> str:
    short = " ".join(text.split())
    return f"“{short[:_SHOWN]}…”" if len(short) > _SHOWN else f"“{short}”"


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(_quoted(part) for part in parts)
