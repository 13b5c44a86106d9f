"""Verification on one device: the questions of a suite, the samples of a network, its nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.run.run import RunJob, Tee, Turn, keep_files, kit_of, record_of
from fleet.engine.run.start import Placed, execute, place
from fleet.model.errors import AnswerError, InputError
from fleet.model.events import RunDone, StepStarted
from fleet.model.plain import to_plain
from fleet.model.playbook import RunSpec
from fleet.model.record import Record
from fleet.model.suite import NodeDifference, Suite, SuiteAnswer, SuiteQuestion, SuiteResult
from fleet.runners.base import (
    AsksSuites,
    Ended,
    Kit,
    Outcome,
    RunsSamples,
    ShowsNodes,
    Start,
)
from fleet.verify.answers import judge_suite, unsteady

if TYPE_CHECKING:
    from fleet.verify.nodes import Network
    from fleet.verify.tensors import PreparedSamples

SAMPLED = "sampling: this runner cannot be told to take the most likely token"
_GREEDY_ALONE = ("llama.cpp",)  # its own default temperature is 0 in fleet


def ask_suite(job: RunJob, suite: Suite) -> Record:
    """Ask a suite and save a record with the checked answers.

    One session, if the runner has one for a suite; else one start for each question. A device
    that ends in the middle leaves answers that do not pass.
    """
    session, host = job.session, job.session.host.name
    kit = kit_of(job)
    asking = _Asking(job, kit, suite)
    text = f"{len(suite.questions)} prompts of the suite {suite.name}"
    session.emit(StepStarted(host, "verify", job.word or text))
    folder = job.store.folder(job.run_id, host, 0, name="suite")
    began, clock = time.gmtime(), time.monotonic()
    with (
        contextlib.closing(Tee(folder / "stdout.log", session, "stdout")) as out,
        contextlib.closing(Tee(folder / "stderr.log", session, "stderr")) as err,
    ):
        placed, ended, answers = asking.together(out, err) or asking.one_by_one(out, err)
    result = judge_suite(suite, answers)
    problems = _problems(ended, result)
    lost = keep_files(folder, {})
    marks = () if asking.greedy or not suite.greedy else (SAMPLED,)
    record = structs.replace(
        record_of(job, placed, Turn(0, False, ""), Outcome(marks=marks)),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        seconds=round(time.monotonic() - clock, 3),
        status=ended.status,
        artifacts={path.name: str(path) for path in sorted(folder.iterdir())},
        problems=(*problems, *lost),
        marks=marks,
        suite=result,
    )
    record = job.store.save(folder, record)
    session.emit(RunDone(host, to_plain(record)))
    return record


def prepare_samples(builder: ReleaseBuilder) -> PreparedSamples | None:
    """Read the samples of the playbook, before a device is asked for anything.

    None if it has none. Raises SuiteError; InputError for a runner that runs no samples.
    """
    use, runner = builder.playbook.verify, builder.runner
    if use is None:
        return None
    if not isinstance(runner, RunsSamples):
        raise InputError(
            f"the runner {runner.name} does not run the samples of `verify:`",
            hint="use the runner ort, or remove `verify:` from the playbook",
        )
    run = builder.playbook.run or RunSpec(runner.name)
    from fleet.verify.tensors import prepare  # noqa: PLC0415 - numpy, with `verify:` alone

    ends = runner.ends(Kit(builder.bundle, run))
    return prepare(use, *(ends or (None, None)))


@dataclass(frozen=True)
class NodeUse:
    """The network that a device runs, and the one that its nodes are compared with."""

    device: Network
    reference: Network


def prepare_nodes(builder: ReleaseBuilder) -> NodeUse:
    """Read both networks, before a device is asked for anything.

    The reference is that of `verify:`, or the same model. Raises InputError and SuiteError.
    """
    use, runner = builder.playbook.verify, builder.runner
    if use is None:
        raise InputError(
            f"{builder.playbook.path} has no `verify:`, so --nodes has no sample to run",
            hint="write `verify: samples:` with the inputs of the network; see docs/verify.md",
        )
    if not isinstance(runner, ShowsNodes):
        raise InputError(
            f"the runner {runner.name} does not show the tensors between the nodes of a network",
            hint="work without --nodes, or use the runner ort with an ONNX model",
        )
    from fleet.verify.nodes import Network  # noqa: PLC0415 - numpy, for --nodes alone

    path = runner.network(Kit(builder.bundle, builder.playbook.run or RunSpec(runner.name)))
    device = Network(path)
    other = use.reference is not None and use.reference.resolve() != path.resolve()
    return NodeUse(device, Network(use.reference) if other and use.reference else device)


def _nodes_of(
    job: RunJob, prepared: PreparedSamples, result: SuiteResult, use: NodeUse, folder: Path
) -> tuple[tuple[NodeDifference, ...], str]:
    """Run the first sample that does not pass, or the first one, with the tensors between the
    nodes as outputs; the nodes, and the problem of the run.
    """
    session, runner = job.session, job.builder.runner
    if not isinstance(runner, ShowsNodes):
        raise TypeError(f"{runner.name} shows no nodes")
    from fleet.verify.nodes import compare_nodes, groups  # noqa: PLC0415 - numpy
    from fleet.verify.tensors import arrays_of, packed  # noqa: PLC0415 - numpy

    bad = [number for number, answer in enumerate(result.answers) if not answer.passed]
    inputs = prepared.inputs(bad[0] if bad else 0)
    text = f"{len(use.device.nodes)} nodes of {use.device.path.name}"
    session.emit(StepStarted(session.host.name, "nodes", job.word or text))
    asked = groups(use.device, use.reference, inputs)
    start = runner.run_nodes(kit_of(job), packed([inputs]), asked)
    placed = place(start, job.plan.manifest, job.plan.facts.base_dir, f"{job.run_id}-nodes")
    with (
        contextlib.closing(Tee(folder / "nodes-stdout.log", session, "stdout")) as out,
        contextlib.closing(Tee(folder / "nodes-stderr.log", session, "stderr")) as err,
    ):
        ended = execute(session, placed, out.take, err.take)
    archive, problem = runner.sample_outputs(start, ended)
    found, damage = arrays_of(archive)
    stored = {name.partition("/")[2]: value for name, value in found.items()}
    if not stored:
        return (), f"failed: no node could be seen: {problem or damage or 'no tensors came back'}"
    return compare_nodes(use.device, use.reference, inputs, stored), problem or damage


def ask_samples(job: RunJob, prepared: PreparedSamples, nodes: NodeUse | None = None) -> Record:
    """Run the samples on a device in one session, and save a record with what differs.

    With `nodes` a second session gives the tensors between the nodes.
    """
    session, host, runner = job.session, job.session.host.name, job.builder.runner
    if not isinstance(runner, RunsSamples):
        raise TypeError(f"{runner.name} runs no samples")
    from fleet.verify.tensors import judge_samples  # noqa: PLC0415 - numpy, for this alone

    count = len(prepared.names)
    session.emit(StepStarted(host, "verify", job.word or f"{count} samples"))
    folder = job.store.folder(job.run_id, host, 0, name="samples")
    began, clock = time.gmtime(), time.monotonic()
    start = runner.run_samples(kit_of(job), prepared.archive)
    placed = place(start, job.plan.manifest, job.plan.facts.base_dir, f"{job.run_id}-samples")
    with (
        contextlib.closing(Tee(folder / "stdout.log", session, "stdout")) as out,
        contextlib.closing(Tee(folder / "stderr.log", session, "stderr")) as err,
    ):
        ended = execute(session, placed, out.take, err.take)
    archive, problem = runner.sample_outputs(start, ended)
    result = judge_samples(prepared, archive, problem)
    problems = [problem] if problem else []
    if nodes is not None:
        rows, trouble = _nodes_of(job, prepared, result, nodes, folder)
        result = structs.replace(result, nodes=rows)
        problems += [trouble] if trouble else []
    lost = keep_files(folder, {"outputs.npz": archive} if archive else {})
    record = structs.replace(
        record_of(job, placed, Turn(0, False, ""), Outcome()),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        seconds=round(time.monotonic() - clock, 3),
        status=ended.status,
        artifacts={path.name: str(path) for path in sorted(folder.iterdir())},
        problems=(*problems, *lost),
        suite=result,
    )
    record = job.store.save(folder, record)
    session.emit(RunDone(host, to_plain(record)))
    return record


def _problems(ended: Ended, result: SuiteResult) -> tuple[str, ...]:
    missing = sum("no answer" in fault for answer in result.answers for fault in answer.faults)
    if ended.status and missing:
        status = "in time" if ended.status in {124, 137} else f"(exit status {ended.status})"
        word = f"did not end {status}" if status == "in time" else f"failed {status}"
        return (f"failed: the program {word}; {missing} of {result.asked} prompts have no answer",)
    return ()


def require_right(result: SuiteResult, host: str) -> None:
    """Raise AnswerError if fewer answers pass than the suite asks for."""
    if result.holds:
        return
    low, high = result.interval()
    first = result.failing[0]
    raise AnswerError(
        f"only {result.shown} of {result.title} passed; {result.at_least} have to pass "
        f"(pass rate {result.passed / result.asked:.0%}, 95% interval {low:.0%} to {high:.0%}). "
        f"{first.name}: {first.faults[0]}",
        step="verify",
        hint=f"fleet verify --limit {host} (shows each answer)",
    )


def require_steady(records: Sequence[Record]) -> None:
    """Raise AnswerError if repeats of one device gave other answers to the same prompts."""
    for name in dict.fromkeys(record.suite.name for record in records if record.suite):
        mine = [record.suite for record in records if record.suite and record.suite.name == name]
        found = unsteady([(f"repeat {n + 1}", result) for n, result in enumerate(mine)])
        if found:
            raise AnswerError(
                f"the same inputs gave different answers: {'; '.join(found[:3])}"
                + (f" and {len(found) - 3} more" if len(found) > 3 else ""),
                step="verify",
                hint="set `sampling: greedy` in the suite; if it is, the device is not "
                "deterministic: fleet doctor (examines the device)",
            )


class _Asking:
    """One suite on one device. `greedy`: the runner was told to take the most likely token."""

    def __init__(self, job: RunJob, kit: Kit, suite: Suite) -> None:
        self._job, self._kit, self._suite = job, kit, suite
        self._runner = job.builder.runner
        self.greedy = self._runner.name in _GREEDY_ALONE

    def together(self, out: Tee, err: Tee) -> tuple[Placed, Ended, Sequence[SuiteAnswer]] | None:
        """Ask all questions in one session; None if the runner cannot."""
        if not isinstance(self._runner, AsksSuites):
            return None
        start = self._runner.ask(self._kit, self._suite)
        if start is None:
            return None
        self.greedy = True
        placed, ended = self._execute(start, "suite", out, err)
        return placed, ended, self._runner.answers(start, self._suite, ended)

    def one_by_one(self, out: Tee, err: Tee) -> tuple[Placed, Ended, Sequence[SuiteAnswer]]:
        """Start the runner once for each question."""
        answers: list[SuiteAnswer] = []
        for number, question in enumerate(self._suite.questions):
            kit = replace(self._kit, run=self._run(question))
            start = self._runner.start(kit)
            placed, ended = self._execute(start, f"q{number}", out, err)
            answers.append(_answer(question, self._runner.read(start, kit, ended), ended))
        return placed, ended, answers

    def _run(self, question: SuiteQuestion) -> RunSpec:
        if question.tokens:
            raise InputError(
                f"prompt {question.name} of the suite {self._suite.name} gives token ids, which "
                f"the runner {self._runner.name} does not take",
                hint="write `prompt:` with text, or use the runner genie",
            )
        return replace(self._job.run, prompt=question.prompt, max_tokens=question.max_tokens)

    def _execute(self, start: Start, word: str, out: Tee, err: Tee) -> tuple[Placed, Ended]:
        job = self._job
        work = f"{job.run_id}-{word}"
        placed = place(start, job.plan.manifest, job.plan.facts.base_dir, work)
        return placed, execute(job.session, placed, out.take, err.take)


def _answer(question: SuiteQuestion, outcome: Outcome, ended: Ended) -> SuiteAnswer:
    limit = any("token limit" in text for text in (*outcome.problems, *outcome.marks))
    faults = [text for text in outcome.problems if "token limit" not in text]
    return SuiteAnswer(
        question.name,
        outcome.text,
        faults=tuple(f"no answer: {text}" for text in faults),
        finish="token-limit" if limit else outcome.finish,
        generated_tokens=outcome.metrics.generated_tokens,
        seconds=round(ended.seconds, 3),
    )
