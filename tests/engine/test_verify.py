"""The suite of a playbook on a board behind a real sshd, with the real libGenie (emulated)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleet.config.playbook import load_playbook
from fleet.config.suite_file import load_suite
from fleet.model.errors import AnswerError, SuiteError
from fleet.model.playbook import RunSpec
from fleet.model.suite import Suite, SuiteQuestion, SuiteUse

from .conftest import ROOT, Bench

FEW = ("fleet", "npu", "stub", "unknown-capital")


def asked(bench: Bench, *names: str, gate: str = "off") -> Suite:
    """Give the playbook of the bench some questions of the shipped suite, and no run."""
    whole = load_suite("tiny", Path(), bench.playbook.bundle)
    questions = tuple(q for q in whole.questions if not names or q.name in names)
    suite = replace(whole, questions=questions, at_least=len(questions))
    bench.playbook = replace(bench.playbook, run=None, suite=SuiteUse(suite, gate))
    return suite


def test_right_answers_in_one_session(bench: Bench) -> None:
    asked(bench, *FEW)
    (deployed,) = bench.operation().deploy()
    assert deployed.error is None
    (result,) = bench.operation().verify(2)
    assert (result.outcome, result.error) == ("ok", None), "both repeats agree"
    record, _ = result.records
    assert record.suite is not None
    assert record.suite.shown == "4 of 4 prompts"
    assert [answer.finish for answer in record.suite.answers] == ["eos"] * 4
    assert record.suite.answers[0].generated_tokens == 26
    assert (record.emulated, record.problems, record.metrics.decode_tps) == (True, (), None)
    starts = [event for event in bench.events if getattr(event, "step", "") == "verify"]
    assert len(starts) == 2
    kept = json.loads(
        (bench.runs.root / record.run_id / record.host / "suite/record.json").read_text()
    )
    assert kept["suite"]["pass_rate"] == 1.0
    assert kept["suite"]["answers"][1]["text"].startswith("An NPU is a processor")


def test_a_suite_costs_three_round_trips_at_most(bench: Bench) -> None:
    asked(bench, "fleet")
    bench.operation().deploy()
    bench.playbook = replace(bench.playbook, run=RunSpec(prompt="What is fleet?", max_tokens=40))
    (once,) = bench.operation().run()
    asked(bench, *FEW)
    (result,) = bench.operation().verify()
    assert result.error is None
    assert result.round_trips <= once.round_trips + 3


def test_a_lost_newline_of_the_chat_template_is_told(bench: Bench, tmp_path: Path) -> None:
    """The model of tiny-genie-chat was taught with its template only."""
    bundle, changed = ROOT / "assets" / "tiny-genie-chat", tmp_path / "changed"
    shutil.copytree(bundle, changed)
    source = (bundle / "chat_template.jinja").read_text()
    whole, newline, end = source.rpartition("\\n")
    assert (newline, end.strip()) == ("\\n", '" }}')
    (changed / "chat_template.jinja").write_text(whole + end)
    passed = []
    bench.playbook = replace(bench.playbook, bundle=bundle, run=None)
    for folder in (bundle, changed):
        suite = load_suite("tiny-chat", Path(), folder)
        few = tuple(q for q in suite.questions if q.name in {"fleet", "skel", "who"})
        suite = replace(suite, questions=few, at_least=len(few))
        bench.playbook = replace(bench.playbook, suite=SuiteUse(suite, "off"))
        if folder == bundle:
            bench.operation().deploy()
        (result,) = bench.operation().verify()
        (record,) = result.records
        assert record.suite is not None
        passed.append((record.suite.passed, isinstance(result.error, AnswerError)))
    assert passed == [(3, False), (0, True)]


def test_token_ids_in_and_out(bench: Bench) -> None:
    tokens = (SuiteQuestion("ids", tokens=(5, 6, 7), max_tokens=100, detect=("no-stop",)),)
    suite = replace(asked(bench, "fleet"), questions=tokens, differ=False)
    bench.playbook = replace(bench.playbook, suite=SuiteUse(suite, "off"))
    bench.operation().deploy()
    (result,) = bench.operation().verify()
    assert result.error is None, result.error
    (answer,) = result.records[0].suite.answers  # type: ignore[union-attr]
    assert all(word.isdecimal() for word in answer.text.split())
    assert answer.generated_tokens == len(answer.text.split()) + 1, "the end token has no text"


def spoilt(bundle: Path) -> Path:
    """Exchange two words of the tokenizer, so that the same tokens read as another text."""
    path = bundle / "tokenizer.json"
    body = json.loads(path.read_text())
    words = body["model"]["vocab"]
    long = [word for word in words if word.isalpha() and len(word) > 2]
    for one, other in zip(long[::2], long[1::2], strict=False):
        words[one], words[other] = words[other], words[one]
    path.write_text(json.dumps(body))
    return bundle


def test_a_release_with_wrong_answers_is_not_switched_on(
    bench: Bench, own_bundle: Callable[[], Path]
) -> None:
    """The probe opens its session and the speed is right: only the answers tell."""
    asked(bench, *FEW, gate="health")
    (first,) = bench.operation().deploy()
    assert (first.outcome, first.error) == ("changed", None)
    assert [record.suite.passed for record in first.records if record.suite] == [4]
    good = bench.current()
    bench.playbook = replace(bench.playbook, bundle=spoilt(own_bundle()))
    (result,) = bench.operation().deploy()
    assert isinstance(result.error, AnswerError)
    assert result.error.message.startswith("only 0 of 4 prompts of the suite tiny passed")
    assert (result.outcome, bench.current()) == ("failed", good)
    texts = [answer.text for answer in result.records[0].suite.answers]  # type: ignore[union-attr]
    assert all(texts)


def test_after_the_switch_the_device_counts_as_failed(
    bench: Bench, own_bundle: Callable[[], Path]
) -> None:
    asked(bench, "fleet", "npu", gate="run")
    bench.playbook = replace(bench.playbook, bundle=spoilt(own_bundle()))
    (result,) = bench.operation().deploy()
    assert isinstance(result.error, AnswerError)
    assert result.outcome == "failed"
    assert bench.current() is not None


def files_of(bench: Bench, folder: Path, samples: str) -> None:
    """A program of the user's own that leaves its outputs as files."""
    (folder / "bundle").mkdir(exist_ok=True)
    (folder / "bundle" / "x").write_text("x")
    mine = folder / "mine"
    mine.write_text('#!/bin/sh\nmkdir "$1/Result_0" && printf 1234 > "$1/Result_0/y.raw"\n')
    (folder / "right.raw").write_bytes(b"1234")
    (folder / "wrong.raw").write_bytes(b"1235")
    (folder / "playbook.yaml").write_text(
        "name: own\nbundle: {path: bundle, kind: files}\nrun:\n  runner: exec\n  program: mine\n"
        '  options: {argv: ["{program}", "{work}"]}\n'
        f"verify: {{gate: off, samples: [{samples}]}}\n"
    )
    bench.playbook = load_playbook(folder / "playbook.yaml")


def test_files_that_a_run_leaves_are_compared_for_every_runner(
    bench: Bench, tmp_path: Path
) -> None:
    expected = "{expected: {y.raw: {file: %s, dtype: uint8, shape: [4]}}}"
    files_of(bench, tmp_path, expected % "right.raw")
    (deployed,) = bench.operation().deploy()
    assert deployed.error is None, deployed.error
    (result,) = bench.operation().verify()
    assert (result.error, result.text) == (None, "1 of 1 samples")
    kept = np.load(result.records[0].artifacts["outputs.npz"])
    assert kept["0/y.raw"].tobytes() == b"1234"
    files_of(bench, tmp_path, expected % "wrong.raw")
    (result,) = bench.operation().verify()
    assert isinstance(result.error, AnswerError)
    assert "the largest difference of y.raw is 1, the limit is 0" in result.error.message
    files_of(bench, tmp_path, "{inputs: {x: {file: right.raw, dtype: uint8, shape: [4]}}}")
    with pytest.raises(SuiteError, match="takes its inputs from `run: options:`"):
        bench.operation().verify()
