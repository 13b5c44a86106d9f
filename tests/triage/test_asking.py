"""Not knowing: numbers and names in words, one next step, and questions that rank anew."""

from __future__ import annotations

import pytest

from fleet.cli.doctor import given
from fleet.model.errors import InputError
from fleet.triage.asking import check_ids
from fleet.triage.knowledge import knowledge
from fleet.triage.triage import triage


def test_an_answer_ranks_anew() -> None:
    before = triage("Failed in loading stub: x\nload Skel, error: 4000\n")
    question = next(one for one in before.questions if one.yes)
    assert question.command
    assert question.no == before.causes[0].cause.id or question.yes == before.causes[0].cause.id
    other = question.yes if question.yes != before.causes[0].cause.id else question.no
    word = "yes" if other == question.yes else "no"
    log = "Failed in loading stub: x\nload Skel, error: 4000\n"
    after = triage(log, answers={question.id: word})
    assert after.causes[0].cause.id == other
    assert question.id not in [one.id for one in after.questions]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("abi-mismtch:ssh-auth=yes", "did you mean 'abi-mismatch:ssh-auth'?"),
        ("guess:abi-mismach=no", "did you mean 'guess:abi-mismatch'?"),
        ("abi-mismatch=no", "did you mean 'guess:abi-mismatch'?"),
        ("lgo=yes", "did you mean 'log'?"),
        ("abi-mismatch:ssh-auth:log=yes", "copy the ID from the question"),
        ("qqqqqqqqq=yes", "copy the ID from the question"),
    ],
)
def test_an_answer_to_no_question_is_refused(text: str, hint: str) -> None:
    with pytest.raises(InputError, match="no question has this ID") as caught:
        given([text])
    assert hint in caught.value.hint


def test_every_question_can_be_answered() -> None:
    logs = [
        "Failed in loading stub: x\nload Skel, error: 4000\n", "Failed to create device: 14001\n",
        "cannot execute binary file: Exec format error\n", "hello there, how are you\n",
        "make: *** [all] Error 2\n", "fastrpc: permission denied\n", "", "panic: nothing known\n",
    ]  # fmt: skip
    ids = {question.id for log in logs for question in triage(log).questions}
    assert len(ids) >= 5
    assert given([f"{one}=no" for one in ids]).keys() == ids
    everything = knowledge()
    ids = {row["id"] for row in everything.steps} | {f"guess:{name}" for name in everything.causes}
    check_ids(ids, everything)


def test_a_pasted_output_ranks_anew() -> None:
    log = "Failed to create device: 14001\n"
    (step, *_) = triage(log).questions
    assert not step.yes, "only the last line is here: more of the log is asked for first"
    pasted = "cannot open libQnnHtpV73Skel.so: no such file or directory\n"
    after = triage(log, answers={step.id: pasted})
    assert after.causes[0].cause.id == "skel-not-found"
    assert not after.causes[0].summary


def test_a_lone_unsure_cause_asks_for_more_of_the_log_first() -> None:
    alone = triage("[  513.944255] qcom,fastrpc: Error: dsp information is incorrect err: -1\n")
    assert alone.causes[0].confidence < 0.7
    assert len(alone.causes) == 1
    assert alone.questions[0].id == "kernel-log"
    assert alone.questions[1].yes

    several = triage("Unable to load backend, error: load library failed\n")
    assert several.causes[0].confidence < 0.7
    assert len(several.causes) > 1
    assert several.questions[0].yes == several.causes[1].cause.id


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
    last = next(one for one in reversed(found.questions) if not one.yes)
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
    question = next(one for one in found.questions if one.yes)
    after = triage(log, answers={question.id: "yes"})
    assert after.causes[0].cause.id == question.yes


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


def test_a_weak_guess_stands_behind_the_open_step() -> None:
    """That something failed says little of why."""
    found = triage("qnn-net-run: Could not register op package: libX.so error 4003")
    assert found.questions[0].id == "qnn-verbose"
    assert "op-package" not in [one.cause.id for one in found.causes if one.confidence >= 0.5]


def test_the_next_step_is_of_the_line_that_failed() -> None:
    before = "adb push model.bin /data/local/tmp: 1 file pushed"
    failing = "E litert: odd error of the graph"
    assert "qnn-verbose" in [one.id for one in triage(f"{before}\n{failing}").questions]
    assert triage(f"{before}\nadb shell: odd error").questions[0].id == "phone-state"


def test_a_number_alone_asks_for_the_first_cause_that_lists_it() -> None:
    found = triage("the tool returned: error 5000")
    assert found.questions[0].id == "guess:qairt-vs-context-version"
    assert triage("QNN tool: odd error 12").questions[0].id == "qnn-verbose"


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
    assert step in [one.id for one in triage(line).questions if not one.yes]
