"""Not knowing: numbers and names in words, one next step, and questions that rank anew."""

from __future__ import annotations

import re

import pytest

from fleet.cli.doctor import given
from fleet.model.errors import InputError
from fleet.triage.asking import check_ids
from fleet.triage.knowledge import knowledge
from fleet.triage.triage import triage


def test_an_answer_ranks_anew() -> None:
    log = "Failed in loading stub: x\nload Skel, error: 4000\n"
    before = triage(log)
    question = before.questions[0]
    assert question.command
    causes = [leaf.cause for leaf in question.leaves]
    assert causes[0] == before.causes[0].cause.id
    assert len(causes) == len(set(causes)) >= 4
    after = triage(log, answers={question.id: causes[-1]})
    assert after.causes[0].cause.id == causes[-1]
    assert question.id not in [one.id for one in after.questions]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("stage:lode=ssh-auth", "did you mean 'stage:load'?"),
        ("lgo=yes", "did you mean 'log'?"),
        ("qqqqqqqqq=yes", "copy the ID from the question"),
    ],
)
def test_an_answer_to_no_question_is_refused(text: str, hint: str) -> None:
    with pytest.raises(InputError, match="no question has this ID") as caught:
        given([text])
    assert hint in caught.value.hint


def test_an_answer_with_an_unknown_cause_is_refused() -> None:
    with pytest.raises(InputError, match="no cause has this ID") as caught:
        given(["stage:load=abi-mismach"])
    assert caught.value.hint == "did you mean 'abi-mismatch'?"


@pytest.mark.parametrize("word", ["2", "yes", "AMD64", "--"])
def test_an_answer_that_is_no_cause_lists_those_of_the_stage(word: str) -> None:
    with pytest.raises(InputError, match="no cause has this ID") as caught:
        given([f"stage:device={word}"])
    assert "skel-not-found" in caught.value.hint
    assert "windows-driver" in caught.value.hint


def test_an_answer_has_a_word_and_may_have_an_equals_sign() -> None:
    with pytest.raises(InputError, match="does not have the form"):
        given(["stage:device="])
    assert given(["RELEASE=/opt/a=b"]) == {"RELEASE": "/opt/a=b"}


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("package architecture (amd64) does not match system (arm64)", "cdsp-not-running"),
        ("QNN_DEVICE_ERROR_INVALID_CONFIG\nskel build id: err: 1008", "thermal-throttling"),
    ],
)
def test_a_cause_that_a_person_names_stands_first(log: str, cause: str) -> None:
    question = next(one for one in triage(log).questions if one.leaves)
    assert triage(log).causes[0].cause.id != cause
    assert triage(log, answers={question.id: cause}).causes[0].cause.id == cause


def test_the_output_answers_the_question_of_its_id() -> None:
    """The stage can come from the layer of the first cause, without a word of it in the log."""
    log = "package architecture (amd64) does not match system (arm64)\n"
    question = triage(log).questions[0]
    assert question.id == "stage:device"
    after = triage(log, answers={question.id: "running\noffline\n"})
    assert "cdsp-not-running" in [row.cause.id for row in after.causes]


def test_every_question_can_be_answered() -> None:
    logs = [
        "Failed in loading stub: x\nload Skel, error: 4000\n", "Failed to create device: 14001\n",
        "cannot execute binary file: Exec format error\n", "hello there, how are you\n",
        "make: *** [all] Error 2\n", "fastrpc: permission denied\n", "", "panic: nothing known\n",
    ]  # fmt: skip
    ids = {question.id for log in logs for question in triage(log).questions}
    assert len(ids) >= 5
    assert given([f"{one}=abi-mismatch" for one in ids]).keys() == ids
    everything = knowledge()
    ids = {row["id"] for row in everything.steps} | {f"stage:{s['id']}" for s in everything.stages}
    check_ids(dict.fromkeys(ids, ""), everything)


def test_each_stage_asks_each_actor_one_question() -> None:
    known = knowledge()
    for stage in known.stages:
        assert not stage["questions"][-1].get("who"), "the last question fits every actor"
        for row in stage["questions"]:
            causes = [leaf["cause"] for leaf in row["leaves"]]
            assert {*causes} <= known.causes.keys()
            assert len(causes) == len(set(causes)) <= 13
            assert row["ask"].endswith("?")
            bare = re.sub(r"\$\{[A-Z]+:\?[^}]+\}", "", row["command"])
            assert not re.search(r"\b(DEVICE|NAME|FILE|MODEL|\w+\.apk)\b| \.\.\.", bare)


@pytest.mark.parametrize(
    ("log", "stage", "leaf"),
    [
        ("qnn/a.cpp:1:2: error: odd thing\nninja: build stopped", "build", "env-script"),
        ("qnn-onnx-converter: odd failure of the graph", "convert", "unsupported-op"),
        ("QNN: odd failure of the device creation", "device", "skel-not-found"),
        ("QNN: context binary: odd failure", "context", "qairt-vs-context-version"),
        ("qnn: Graph execute odd failure", "execute", "input-mismatch"),
        ("GenieDialog_query: odd failure", "generate", "genie-config"),
        ("adb: odd failure of the push", "connect", "adb-unauthorized"),
        ("qnn-profile-viewer: odd failure", "profile", "bundle-incomplete"),
        ("qai_hub.client: odd failure of the compile job", "aihub", "input-mismatch"),
        ("remoteproc remoteproc0: odd failure", "dsp", "firmware-missing"),
    ],
)
def test_an_unknown_failure_is_asked_about_in_its_stage(log: str, stage: str, leaf: str) -> None:
    question = triage(log).questions[0]
    assert question.id == f"stage:{stage}"
    assert leaf in [one.cause for one in question.leaves]


def test_the_output_of_the_command_answers() -> None:
    log = "QNN: DLL load failed while importing onnxruntime: odd failure\nC:\\x\\y.dll\n"
    question = next(one for one in triage(log).questions if one.leaves)
    after = triage(log, answers={question.id: "3.11.9 (MSC v.1938)\nAMD64\n"})
    assert after.causes[0].cause.id == "wrong-python-arch"
    assert "answer" in [row.source for row in after.causes[0].evidence]
    assert all(row.line == 0 for row in after.causes[0].evidence if row.source == "answer")


def test_an_answer_is_never_quoted_as_a_line_of_the_log() -> None:
    log = "QNN: odd failure of the graph\n"
    pasted = "frob: tokenizer.model could not be found\n"
    found = triage(log, answers={"qnn-verbose": pasted})
    assert all("tokenizer.model" not in row.title for row in found.causes)


def test_a_pasted_output_ranks_anew() -> None:
    log = "Failed to create device: 14001\n"
    step = next(one for one in triage(log).questions if not one.leaves)
    pasted = "cannot open libQnnHtpV73Skel.so: no such file or directory\n"
    after = triage(log, answers={step.id: pasted})
    assert after.causes[0].cause.id == "skel-not-found"
    assert not after.causes[0].summary


def test_an_unsure_cause_asks_with_the_other_causes_of_its_stage() -> None:
    several = triage("Unable to load backend, error: load library failed\n")
    assert several.causes[0].confidence < 0.7
    leaves = [leaf.cause for leaf in several.questions[0].leaves]
    ranked = [one.cause.id for one in several.causes]
    assert leaves[: len(ranked)] == ranked
    assert len(leaves) > len(ranked)


def test_a_sure_cause_asks_nothing() -> None:
    log = (
        "Direct firmware load for qcom/cdsp.mbn failed with error -2\ncan't start rproc cdsp: -2\n"
    )
    found = triage(log)
    assert found.causes[0].confidence >= 0.8
    assert found.questions == ()


@pytest.mark.parametrize(
    ("line", "step", "word"),
    [
        ("[   12.345678] remoteproc remoteproc9: odd trouble", "kernel-log", "dmesg"),
        ("E MyApp: /data/local/tmp/x odd failure", "logcat", "logcat"),
        ("kex error: ssh: odd", "ssh-verbose", "ssh -v"),
        ("odd error of a qairt wheel", "python-versions", "pip list"),
        ("E: odd error of apt-get", "packages", "apt-cache"),
        ("QNN odd error", "qnn-verbose", "verbose"),
        ("odd error", "everything", "dmesg"),
    ],
)
def test_the_next_step_is_one_command(line: str, step: str, word: str) -> None:
    found = triage(line)
    assert all(one.confidence < 0.5 for one in found.causes)
    last = next(one for one in reversed(found.questions) if not one.leaves)
    assert last.id == step
    assert word in last.command
    assert last.text.endswith(".")


def test_what_is_understood_of_an_unknown_log() -> None:
    found = triage(
        "hello\nsetup failed with error code 1002\nbind: errno 98\nNo module named 'abc'\n"
    )
    assert found.verdict == "not-recognised"
    text = "\n".join(found.understood)
    assert "QNN_COMMON_ERROR_MEM_ALLOC" in text
    assert "EADDRINUSE" in text
    assert "no module abc" in text
    assert [line.line for line in found.suspects] == [2]


def test_a_guess_of_subject_and_symptom_stays_below_a_claim() -> None:
    log = "QNN: the odd skel thing: built with another sdk\n"
    found = triage(log)
    assert found.causes[0].cause.id == "stub-skel-version-mismatch"
    assert found.causes[0].confidence < 0.5
    question = found.questions[0]
    after = triage(log, answers={question.id: "mixed-install"})
    assert after.causes[0].cause.id == "mixed-install"


def test_every_family_leads_to_a_cause() -> None:
    known = knowledge()
    assert {name for name in known.families.values() if name} <= set(known.causes)
    assert sum(bool(name) for name in known.families.values()) > 60


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("<E> Context binary dspArch 73 not match with runtime arch 68", "wrong-htp-arch-binary"),
        ("[E] Given binary is not a valid QNN context (magic mismatch)", "context-binary-corrupt"),
        ("cdsprpcd.service - inactive (dead)", "cdsprpcd-inactive"),
        ("error: cannot connect to daemon", "adb-offline"),
    ],
)
def test_subject_and_symptom_make_a_low_answer(line: str, question: str) -> None:
    found = triage(line)
    assert found.causes[0].cause.id == question
    assert found.causes[0].confidence < 0.5


def test_the_next_step_is_of_the_line_that_failed() -> None:
    before = "adb push model.bin /data/local/tmp: 1 file pushed"
    failing = "E litert: odd error of the graph"
    assert "qnn-verbose" in [one.id for one in triage(f"{before}\n{failing}").questions]
    assert "phone-state" in [one.id for one in triage(f"{before}\nadb shell: odd error").questions]


def test_a_number_alone_is_a_leaf_of_the_question() -> None:
    found = triage("the qnn tool returned: error 5000")
    assert "qairt-vs-context-version" in [leaf.cause for leaf in found.questions[0].leaves]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("llm.service: Main process exited, code=exited, status=203/EXEC", "service"),
        ("adb: odd trouble", "phone-state"),
        ("adb push: odd trouble", "phone-state"),
        ("E: odd trouble of the repository https://x.example", "packages"),
        ("Process exited with 0xC0000005", "killed"),
        ("Download failed with code: 404", "network"),
        ("cp: write error: No space left on device", "disk-and-rights"),
    ],
)
def test_the_next_step_fits_what_failed(line: str, step: str) -> None:
    assert step in [one.id for one in triage(line).questions if not one.leaves]
