"""Every cause file: its own examples come out first, its names exist, its words are plain."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fleet.config.cause_file import load_cause, load_causes
from fleet.doctor.page import page
from fleet.model.cause import Cause, Example
from fleet.model.diagnosis import Check, Evidence
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import Witness, rank
from fleet.triage.triage import triage

ROOT = Path(__file__).parents[2]
CAUSES = list(knowledge().causes.values())
EXAMPLES = [(cause, example) for cause in CAUSES for example in cause.examples]
FACTS = (ROOT / "docs" / "doctor.md").read_text("utf-8")
# Ids that reported cases use (failure_cases.jsonl); each has a file.
REPORTED = {
    json.loads(line)["root_cause"]
    for line in (Path(__file__).parent / "data" / "reported.jsonl").read_text("utf-8").splitlines()
} - {"unknown", "benign-noise"}


def by_facts(cause: Cause, facts: dict[str, str]) -> list[str]:
    witnesses = [
        Witness(one, predicate.weight, Evidence("facts", predicate.fact))
        for one in CAUSES
        for predicate in one.probe
        if facts.get(predicate.fact) in predicate.values
    ]
    platform = cause.platforms[0] if len(cause.platforms) == 1 else ""
    return [one.cause.id for one in rank(witnesses, platform, known=knowledge().causes)]


def led_to(cause: Cause, example: Example) -> list[str]:
    if example.facts is not None:
        return by_facts(cause, dict(example.facts))
    return [one.cause.id for one in triage(example.log, of_device=True).causes]


def test_an_example_leads_to_its_cause() -> None:
    assert len(EXAMPLES) >= 300
    wrong = [
        f"{cause.id}: {found[:3]} for {str(example.facts or example.log)[:200]!r}"
        for cause, example in EXAMPLES
        if cause.id not in (found := led_to(cause, example))[: example.top]
    ]
    assert wrong == []


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_a_cause_says_what_a_person_needs(cause: Cause) -> None:
    assert cause.title
    assert not cause.title.endswith(".")
    assert len(cause.explanation.split()) >= 12
    assert cause.fix or cause.severity == "advice"
    assert cause.verify.strip()
    assert cause.sources
    assert cause.signatures or cause.probe
    for fix in cause.fix:
        assert "chmod 666" not in fix.command
        assert "chmod 777" not in fix.command
        assert fix.platform in {"any", *cause.platforms} or cause.probe


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_a_cause_asks_for_facts_that_exist(cause: Cause) -> None:
    for predicate in cause.probe:
        row = re.search(rf"^\| `{re.escape(predicate.fact)}` \| (.*?) \|", FACTS, re.MULTILINE)
        assert row, predicate.fact
        for value in predicate.values:
            assert f"`{value}`" in row[1] or predicate.fact.startswith("node."), value


def test_every_reported_cause_has_a_file() -> None:
    assert {one.id for one in CAUSES} >= REPORTED


@pytest.mark.parametrize("head", ["use strict;", "#include <cstdio>", "open(F, $f) or die 'x';"])
def test_the_source_of_a_program_is_no_read_only_storage(head: str) -> None:
    line = "QNN: failed to open the result file for writing"
    assert triage(f"{line}\n").causes[0].cause.id == "storage-read-only"
    causes = triage(f"{head}\n{line}\n").causes
    assert "storage-read-only" not in [row.cause.id for row in causes]


def test_the_page_is_made_from_the_files() -> None:
    made = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    assert made == page(CAUSES), "run: python -m fleet.doctor.page docs/troubleshooting.md"
    assert "; ``:" not in made  # a twin without a command is told apart by the log


def write(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, "utf-8")
    return path


GOOD = """\
id: mine
title: A thing
layer: os
explanation: words
signatures:
  - {match: 'my own words', weight: 0.9}
verify: look
examples:
  - {log: my own words}
"""


def test_a_contributor_adds_a_cause_without_code(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert triage("here are MY OWN WORDS", causes=tmp_path).causes[0].cause.id == "mine"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("layer: os", "layer: attic", "'attic' is not a value of 'layer'"),
        ("weight: 0.9", "weight: 7", "less than 1"),
        ("verify: look\n", "", "verify"),
        ("title:", "titel:", "titel"),
        ("id: mine", "id: yours", "the file name 'mine' differ"),
        ("examples:", "excludes: [nobody]\nexamples:", "'nobody', which does not exist"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_causes([path])
    assert said in str(caught.value)


def test_a_pattern_that_is_none_is_named(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("my own words', w", "(?=ahead)', w"))
    knowledge.cache_clear()
    with pytest.raises(InputError, match=r"cause mine: .* is not a valid RE2 regular expression"):
        triage("x", causes=tmp_path)


def test_yes_and_numbers_are_words(tmp_path: Path) -> None:
    text = GOOD.replace(
        "verify:", "codes: [14001]\nprobe:\n  - {fact: disk.exec, is: no, weight: 0.9}\nverify:"
    )
    cause = load_cause(write(tmp_path, text))
    assert cause.codes == ("14001",)
    assert cause.probe[0].values == ("no",)


def test_check_is_plain_data() -> None:
    assert to_plain(Check("a", "os", "ok", "fine"))["facts"] == {}


def test_a_benign_line_counts_for_no_pattern(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("my own words', w", "ENOENT|my own words', w"))
    line = 'openat(AT_FDCWD, "/usr/lib/rfsa/adsp/testsig.so", O_RDONLY) = -1 ENOENT'
    assert triage(line, causes=tmp_path).causes == ()
    assert triage(line.replace("testsig", "other"), causes=tmp_path).causes


def test_a_symptom_is_never_sure_and_asks_what_separates_its_causes() -> None:
    log = (
        "remoteproc remoteproc2: crash detected in cdsp: type fatal error\n"
        "remoteproc remoteproc2: handling crash #1 in cdsp\n"
    )
    found = triage(log)
    assert found.causes[0].cause.id == "dsp-crash-ssr"
    assert found.causes[0].confidence <= 0.75
    leaves = {leaf.cause for leaf in found.questions[0].leaves}
    assert leaves >= {twin.cause for twin in found.causes[0].cause.twins}


def test_every_symptom_has_causes_to_ask_for() -> None:
    symptoms = [cause for cause in knowledge().causes.values() if cause.symptom]
    assert len(symptoms) >= 5
    assert [cause.id for cause in symptoms if not cause.twins] == []


def test_the_reason_before_a_symptom_is_named_first() -> None:
    log = (
        "qcom,fastrpc 32300000.remoteproc:glink-edge: no reserved DMA memory for FASTRPC\n"
        "qcom,fastrpc-cb compute-cb@1: mem mmap error, fd 11, vaddr ffff7eed0000, size 262144\n"
        "remoteproc remoteproc1: crash detected in cdsp: type fatal error\n"
    )
    found = triage(log).causes
    assert [one.cause.id for one in found[:2]] == ["kernel-fastrpc-config", "dsp-crash-ssr"]


@pytest.mark.parametrize("reason_first", [True, False])
def test_only_a_reason_before_its_symptom_is_named_first(reason_first: bool) -> None:
    lines = [
        "Failed to load from EpContext model. Failed to get context binary info.\n",
        "qai_hub: Compilation job jabc failed: QAIRT quantizer failed with exit code 1\n",
    ]
    causes = ["context-binary-corrupt", "aihub-job-failed"]
    order = slice(None, None, 1 if reason_first else -1)
    found = triage("".join(lines[order])).causes
    assert [one.cause.id for one in found[:2]] == causes[order]


def test_the_first_error_of_a_build_is_quoted_and_asked_for() -> None:
    log = (
        "[1520/1534] Building CXX object qnn/frob.cc.o\n"
        "FAILED: qnn/frob.cc.o\n"
        "qnn/frob.cc:12:3: error: expected expression behind 'QNN_FROB'\n"
        "ninja: build stopped: subcommand failed.\n"
    )
    found = triage(log)
    assert found.causes[0].cause.id == "stated-build"
    assert "QNN_FROB" in found.causes[0].title
    assert found.questions[0].id == "stage:build"
    assert "first-build-error" in [question.id for question in found.questions]


def test_what_the_loader_of_the_dsp_refused_is_not_missing() -> None:
    log = (
        "Error 0x80000406: remote_handle_open_domain: dynamic loading failed for "
        "file:///libmyop_skel.so?x&_dom=cdsp on domain 3 (dlerror undefined PLT symbol HAP_x)\n"
    )
    assert triage(log).causes[0].cause.id == "skel-refused"
