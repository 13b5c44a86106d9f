"""Checks and detectors: each with an answer that passes and one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.model.suite import AnswerCheck as Check
from fleet.model.suite import Suite, rate_interval
from fleet.model.suite import SuiteAnswer as Answer
from fleet.model.suite import SuiteQuestion as Question
from fleet.verify.answers import (
    calls_in,
    judge,
    judge_suite,
    numbers_in,
    repeated,
    split_thought,
    unlike_schema,
    unsteady,
)

SALAD = "timetimetimetimetimetimetimetimetimetime"
HEALTHY = (
    "Paris",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20",
    "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |",
    "Ha ha ha! That is a good one, and I have heard it many times before.",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n",
    "- The first item is red.\n- The second item is green.\n- The third item is blue.\n",
    "yes yes yes",
    "1.0000000000000000000",
)
LOOPS = (
    SALAD,
    "!" * 40,
    "The sky is blue. " * 8,
    "First the model works well. " + "and then " * 30,
    "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    "der Mann la casa " * 12,
)


def one(kind: str, value: Any, text: str, **more: Any) -> tuple[str, ...]:
    question = Question("q", checks=(Check(kind, value, **more),))
    return judge(question, Answer("q", text)).faults


@pytest.mark.parametrize(
    ("kind", "value", "right", "wrong", "words"),
    [
        ("exact", ("42", "forty-two"), " forty-two\n", "42.", "exact: expected"),
        ("contains", ("ab", "cd"), "cd and ab", "cd alone", "contains: “ab” is missing"),
        ("lacks", ("sorry",), "Done.", "I am sorry.", "the answer contains “sorry”"),
        ("regex", r"^\d+$", "12", "12 apples", "does not match"),
        ("number", (42.0, 0.0), "It is 6 * 7 = 42.", "41", "the last number is 41"),
        ("number", (1000.0, 1.0), "about 1,000.5 metres", "1,002", "expected 1000 ± 1"),
        ("number", (3.0, 0.0), "3", "three", "has no number"),
        ("choice", ("B", tuple("ABCD")), "The answer is B, not A.", "A or B", "expected B"),
        ("choice", ("B", tuple("ABCD")), "B) Mercury", "C", "got “C”"),
        ("choice", ("yes", ("yes", "no")), "yes", "no", "expected yes"),
        ("length", {"max_words": 3}, "two words", "one two three four", "at most 3"),
        ("length", {"min_chars": 3}, "abc", "ab", "expected at least 3"),
        ("json", {}, '```json\n{"a": 1}\n```', "{a: 1}", "is not valid JSON"),
        ("json", {"fields": {"a.0.b": 2}}, '{"a": [{"b": 2.0}]}', '{"a": []}', "is missing"),
        ("json", {"fields": {"a": True}}, '{"a": true}', '{"a": 1}', "the field a is 1"),
        ("json", {"schema": {"type": "array", "maxItems": 1}}, "[1]", "[1, 2]", "has 2 items"),
        (
            "tool_call",
            ("f", {"city": "Rome"}),
            '{"name": "f", "parameters": {"city": "Rome"}}',
            '{"name": "f", "parameters": {"city": "Oslo"}}',
            'the argument city is "Oslo"',
        ),
        ("tool_call", ("f", None), "[f(a=1)]", "f is a tool", "calls no tool"),
        ("tool_call", ("f", {}), "[f()]", "[f(), g()]", "got 2 calls"),
    ],
)  # fmt: skip
def test_each_check(kind: str, value: Any, right: str, wrong: str, words: str) -> None:
    assert one(kind, value, right) == ()
    (fault,) = one(kind, value, wrong)
    assert words in fault


def test_case_is_ignored_where_asked() -> None:
    for kind, value in (("exact", ("YES",)), ("contains", ("YES",)), ("regex", "^YES$")):
        assert one(kind, value, "yes")
        assert one(kind, value, "yes", ignore_case=True) == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "w", "parameters": {"city": "Rome", "days": 2}}',
        '<|python_tag|>{"name": "w", "parameters": {"city": "Rome", "days": 2}}',
        'So:\n<tool_call>\n{"name": "w", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>',
        '<TOOLCALL>[{"name": "w", "arguments": {"city": "Rome", "days": 2}}]</TOOLCALL>',
        '[TOOL_CALLS] [{"name": "w", "arguments": {"city": "Rome", "days": 2}}]',
        "[w(city='Rome', days=2)]",
        '```\n{"function":{"name": "w", "arguments": "{\\"city\\":\\"Rome\\",\\"days\\":2}"}}\n```',
    ],
)  # fmt: skip
def test_every_format_of_tool_calls(text: str) -> None:
    (call,) = calls_in(text)
    assert (call.name, dict(call.arguments)) == ("w", {"city": "Rome", "days": 2})


@pytest.mark.parametrize(
    "text", ["", "w", "w(1)", "[w(city=open('x'))]", "w(**a)", "[" * 5000, '{"name": 1}', "\\d(a=1"]
)
def test_other_text_calls_no_tool(text: str) -> None:
    assert calls_in(text) == []


def test_a_thought_is_split_off() -> None:
    assert split_thought("<think>\nhm\n</think>\n\n42") == ("hm", "42", False)
    assert split_thought("hm</think>42") == ("hm", "42", False)
    assert split_thought("42") == ("", "42", False)
    assert split_thought("<think>hm hm") == ("hm hm", "", True)
    faults = judge(Question("q"), Answer("q", "<think>hm hm")).faults
    assert "thinking never ended: the answer has no </think>" in faults
    thinks = Question("q", checks=(Check("thinks", True), Check("exact", ("42",))))
    assert judge(thinks, Answer("q", "<think>hm</think>42")).passed
    assert "no text between" in judge(thinks, Answer("q", "42")).faults[0]


@pytest.mark.parametrize("text", HEALTHY)
def test_healthy_answers_raise_no_alarm(text: str) -> None:
    assert repeated(text) == ""
    assert judge(Question("q"), Answer("q", text, finish="eos")).passed


@pytest.mark.parametrize("text", LOOPS)
def test_loops_are_found(text: str) -> None:
    (fault,) = judge(Question("q"), Answer("q", text)).faults
    assert fault.startswith("repetition: ")


def test_the_other_detectors() -> None:
    assert judge(Question("q"), Answer("q", " \n")).faults == ("empty answer",)
    assert judge(Question("q"), Answer("q", "a\ufffdb")).faults[0].startswith("not UTF-8")
    (fault,) = judge(Question("q", max_tokens=7), Answer("q", "a b", finish="token-limit")).faults
    assert fault == "no stop: the answer reached the limit of 7 tokens"
    quiet = Question("q", detect=())
    assert judge(quiet, Answer("q", SALAD, finish="token-limit")).passed


def suite(*names: str, differ: bool = True, at_least: int | None = None) -> Suite:
    questions = tuple(Question(name, prompt=name) for name in names)
    return Suite("s", questions, at_least or len(names), "0" * 64, differ=differ)


def test_one_answer_to_all_is_found_only_where_answers_should_differ() -> None:
    same = [Answer("a", "I am sorry."), Answer("b", " I am sorry. ")]
    result = judge_suite(suite("a", "b"), same)
    assert result.passed == 0
    assert result.failing[0].faults == ("same answer to all 2 prompts",)
    assert judge_suite(suite("a", "b", differ=False), same).holds
    assert judge_suite(suite("a", "b"), [Answer("a", "x"), Answer("b", "y")]).holds


def test_repeats_are_compared_and_the_first_difference_is_named() -> None:
    first = judge_suite(suite("a", "b"), [Answer("a", "x"), Answer("b", "one two three")])
    other = judge_suite(suite("a", "b"), [Answer("a", "x"), Answer("b", "one two four")])
    assert unsteady([("repeat 1", first), ("repeat 2", first)]) == []
    found = unsteady([("repeat 1", first), ("repeat 2", first), ("repeat 3", other)])
    assert found == ["b: repeat 3 differs from repeat 1 from word 3 on"]
    tensors = [
        judge_suite(suite("a", differ=False), [Answer("a", f"x: equal [00]; y: equal [{n}]")])
        for n in (1, 2)
    ]
    found = unsteady([("evk-01", tensors[0]), ("evk-02", tensors[1])])
    assert found == ["a: evk-02 differs from evk-01 in y"]


def test_a_missing_answer_does_not_pass() -> None:
    result = judge_suite(suite("a", "b", at_least=1), [Answer("b", "y")])
    assert (result.shown, result.holds) == ("1 of 2 prompts", True)
    assert result.failing[0].faults == ("no answer: the program ended before this prompt",)


def test_an_answer_that_could_not_be_had_is_not_checked() -> None:
    failed = Answer("q", "", faults=("no answer: exit status 1",))
    assert judge(Question("q", checks=(Check("exact", ("x",)),)), failed).faults == failed.faults


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1,234.5, -3", [1234.5, -3]), ("12 %", [12]), ("\u22127", [-7]), ("1e3", [1000]), ("no", [])],
)  # fmt: skip
def test_numbers(text: str, numbers: list[float]) -> None:
    assert numbers_in(text) == numbers


@pytest.mark.parametrize(
    ("value", "schema", "words"),
    [
        ({"a": 1}, {"type": "object", "required": ["b"]}, "the field b is missing"),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}, "expected type string"),
        ({"a": 1}, {"additionalProperties": False}, "the field a is not expected"),
        ([1, "x"], {"items": {"type": "integer"}}, "item 2 of the answer"),
        (5, {"maximum": 4}, "the answer is 5"),
        (True, {"type": "number"}, "expected type number"),
        ("abc", {"pattern": "^b"}, "does not match"),
        ("abc", {"enum": ["a", 1]}, "expected one of"),
        (1, {"const": True}, "expected true"),
        (float("inf"), {"type": "integer"}, "expected type integer"),
        (float("nan"), {"type": "integer"}, "expected type integer"),
        (1.5, {"type": "integer"}, "expected type integer"),
    ],
)
def test_schemas(value: Any, schema: dict[str, Any], words: str) -> None:
    assert words in unlike_schema(value, schema)
    assert (
        unlike_schema(
            {"a": [1.0], "b": None}, {"properties": {"a": {"items": {"type": "integer"}}}}
        )
        == ""
    )


@pytest.mark.parametrize(
    ("passed", "asked", "low", "high"),
    [  # R: prop.test(18, 20, correct = FALSE), prop.test(20, 20, ...), prop.test(0, 20, ...)
        (18, 20, 0.6989664, 0.9721335),
        (20, 20, 0.8388742, 1.0),
        (0, 20, 0.0, 0.1611258),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_of_a_pass_rate(passed: int, asked: int, low: float, high: float) -> None:
    assert rate_interval(passed, asked) == pytest.approx((low, high), abs=1e-6)


def test_json_that_is_nested_too_deeply_is_no_json() -> None:
    deep = "[" * 200_000 + "]" * 200_000
    for text in (deep, f"```json\n{deep}\n```"):
        checks = (Check("json", {"fields": {}}),)
        found = judge(Question("q", checks=checks, detect=()), Answer("q", text))
        assert "is not valid JSON" in found.faults[0]
