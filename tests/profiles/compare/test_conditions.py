"""Same conditions? Each thing that can differ, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fleet.model.conditions import Conditions, Sample
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.profiles.compare.conditions import ConditionFinding, Weight, check, check_vary, options

from .made import NEW, conditions, metrics, newer, record, repeats

A = repeats([10.0] * 3)


def found(b: list[Record], *vary: str) -> dict[str, Weight]:
    return {one.what: one.weight for one in check(A, b, vary)}


def changed(**changes: Any) -> list[Record]:
    return [replace(one, **changes) for one in A]


def test_the_same_run_again_differs_in_nothing() -> None:
    again = [
        replace(one, run_id="20261105-080000-cccccc",
                argv=tuple(w.replace("20261101-100000-aaaaaa-r0", "20261105-080000-cccccc-r7")
                           for w in one.argv))
        for one in A
    ]  # fmt: skip
    assert check(A, again) == []


def test_one_cause_is_what_is_compared() -> None:
    assert found(newer(A)) == {"runtime": Weight.COMPARED, "libraries": Weight.COMPARED}


def test_the_model_may_be_what_is_compared() -> None:
    other = changed(files={**A[0].files, "bundle/model.bin": "x" * 64}, release="r9" * 8)
    assert found(other) == {"model": Weight.COMPARED}


def test_another_prompt_may_have_another_number_of_tokens() -> None:
    """Of the same prompt that is another tokenizer: then it is not what was compared."""
    longer = metrics(10, prompt_tokens=6)
    assert found(changed(prompt_sha256="cd" * 32, metrics=longer)) == {
        "prompt": Weight.COMPARED, "prompt tokens": Weight.COMPARED
    }  # fmt: skip
    other = changed(prompt_sha256="cd" * 32, metrics=longer, runner="llama.cpp")
    assert found(other, "runner")["prompt tokens"] is Weight.BLOCKS
    assert found(other, "runner", "prompt")["prompt tokens"] is Weight.COMPARED
    (said,) = [one.text for one in check(A, other, ["prompt"]) if one.what == "prompt tokens"]
    assert "TTFT and prompt tok/s" in said


def test_two_causes_have_to_be_said() -> None:
    other = [replace(one, files={**one.files, "bundle/model.bin": "x" * 64}) for one in newer(A)]
    both = found(other)
    assert both["model"] is Weight.BLOCKS
    assert both["runtime"] is Weight.WARNS
    meant = found(other, "model", "runtime")
    assert set(meant.values()) == {Weight.COMPARED}
    assert found(other, "runtime")["model"] is Weight.BLOCKS


CASES: list[tuple[str, Weight, Callable[[], list[Record]]]] = [
    ("emulated", Weight.BLOCKS, lambda: changed(emulated=True)),
    ("finish", Weight.BLOCKS, lambda: changed(finish="token-limit")),
    ("prompt tokens", Weight.BLOCKS, lambda: changed(metrics=metrics(10, prompt_tokens=30))),
    ("prompt", Weight.COMPARED, lambda: changed(prompt_sha256="cd" * 32)),
    ("runner", Weight.COMPARED, lambda: changed(runner="llama.cpp")),
    ("chip", Weight.COMPARED, lambda: changed(facts={**A[0].facts, "soc": {"chip": "QCS8300"}})),
    ("options", Weight.COMPARED, lambda: changed(argv=(*A[0].argv, "--fast"))),
    ("options", Weight.COMPARED, lambda: changed(env={**A[0].env, "X": "1"})),
    ("libraries", Weight.WARNS, lambda: changed(files={**A[0].files, "lib/libQnnHtp.so": NEW},
                                               release="r3" * 8)),
    ("op packages", Weight.COMPARED, lambda: changed(origin={**A[0].origin, "op_packages": [1]},
                                                    release="r3" * 8)),
    ("system", Weight.WARNS, lambda: changed(facts={**A[0].facts, "kernel": "6.9"})),
    ("governor", Weight.WARNS,
     lambda: changed(conditions=conditions(governors={"cpu:policy0": "schedutil"}))),
    ("clock limits", Weight.WARNS,
     lambda: changed(conditions=conditions(limits={"cpu:policy0": 1e9}))),
    ("charger", Weight.UNKNOWN, lambda: changed(conditions=conditions(power={"usb": "online"}))),
    ("throttled", Weight.WARNS, lambda: changed(marks=("throttled: cpu:policy0",))),
    ("fleet", Weight.REMARK, lambda: changed(fleet="0.2.0")),
    ("start temperature", Weight.WARNS, lambda: changed(conditions=conditions(46.0))),
    ("load", Weight.WARNS,
     lambda: changed(conditions=conditions(before=Sample(-1, {"c": 40.0}, load=3)))),
    ("generated tokens", Weight.WARNS, lambda: changed(metrics=metrics(10, generated_tokens=40))),
    ("runtime", Weight.UNKNOWN, lambda: changed(origin={})),
    ("prompt", Weight.UNKNOWN, lambda: changed(prompt_sha256="")),
    ("finish", Weight.UNKNOWN, lambda: changed(finish=None)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "weight", "b"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_each_difference_has_its_weight(
    what: str, weight: Weight, b: Callable[[], list[Record]]
) -> None:
    assert found(b()) == {what: weight}


def test_a_little_warmer_is_the_same() -> None:
    assert found(changed(conditions=conditions(44.9))) == {}


def test_what_nobody_looked_at_is_unknown_not_equal() -> None:
    """A record of an import or of an article: conditions were not written down."""
    bare = changed(conditions=Conditions(), files={}, argv=(), prompt_sha256="", origin={})
    unknown = {name for name, weight in found(bare).items() if weight is Weight.UNKNOWN}
    assert {"governor", "start temperature", "prompt", "model", "runtime"} <= unknown
    both = {one.what: one.weight for one in check(bare, bare)}
    assert both["governor"] is both["model"] is Weight.UNKNOWN


def test_one_side_that_is_mixed_is_said() -> None:
    mixed = [*A[:2], replace(A[2], run_id="x", facts={**A[2].facts, "kernel": "6.9"})]
    again = [*A[:2], replace(A[2], run_id="x", facts={**A[2].facts, "kernel": "6.9"})]
    seen = check(mixed, again)
    assert [(one.what, one.weight) for one in seen] == [("system", Weight.WARNS)]
    assert "not the same in all runs" in seen[0].text


def test_vary_names_a_cause() -> None:
    with pytest.raises(InputError, match="--vary: 'weather'") as caught:
        check_vary(["weather"])
    assert "model" in caught.value.hint
    check_vary(["model", "runtime", "chip"])


def test_folders_and_ids_are_no_options() -> None:
    one = record(
        argv=("x", "/a/runs/20261101-100000-aaaaaa-w0/p", "/a/releases/llm/0123456789abcdef/bin")
    )
    other = record(
        run_id="20261202-100000-bbbbbb", release="f" * 16,
        argv=("x", "/a/runs/20261202-100000-bbbbbb-r3/p", "/a/releases/llm/ffffffffffffffff/bin"),
    )  # fmt: skip
    assert options(one) == options(other)


def test_findings_are_plain_data() -> None:
    assert to_plain(ConditionFinding("x", Weight.WARNS, "1", "2")) == {
        "what": "x", "weight": "warns", "a": "1", "b": "2", "board": "", "text": "",
    }  # fmt: skip


def test_between_genie_and_geniex_the_programs_differ_too() -> None:
    a, b = changed(runner="genie"), changed(runner="geniex")
    (said,) = [one for one in check(a, b) if one.what == "runner"]
    assert said.weight is Weight.COMPARED
    for words in ("multiple of 128 tokens", "samples with top-p 1", "chat template"):
        assert words in said.text
    (other,) = [one for one in check(a, changed(runner="llama.cpp")) if one.what == "runner"]
    assert other.text == ""
