"""Verification on one device: the questions of a suite, the samples of a network, its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from fleet.engine.deploy.release_builder import Builder
from fleet.engine.run.run import Recording, RunJob, Tee, Turn, kit_of
from fleet.engine.run.start import Placed, execute, place
from fleet.model.errors import AnswerError, InputError, SuiteError
from fleet.model.events import RunDone, StepStarted
from fleet.model.metrics import PERPLEXITY
from fleet.model.plain import to_plain
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics, Record
from fleet.model.suite import NodeDifference, Suite, SuiteAnswer, SuiteQuestion, SuiteResult
from fleet.runners.base import (
    AsksSuites,
    Ended,
    Kit,
    Outcome,
    Runner,
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


class _Verification(Recording):
    """A record of answers in the making."""

    def __init__(self, job: RunJob, name: str) -> None:
        super().__init__(job, job.store.folder(job.run_id, job.session.host.name, 0, name=name))

    def execute(self, start: Start, word: str, logs: tuple[Tee, Tee]) -> tuple[Placed, Ended]:
        """Start a program in a work folder that has `word` in its name, and wait for its end."""
        job = self.job
        work = f"{job.run_id}-{word}"
        placed = place(start, job.plan.manifest, job.plan.facts.base_dir, work)
        out, err = logs
        return placed, execute(job.session, placed, out.take, err.take)

    def save(
        self,
        placed: Placed,
        ended: Ended,
        result: SuiteResult,
        problems: Sequence[str],
        *,
        files: Mapping[str, bytes] = {},
        metrics: Metrics = Metrics(),  # noqa: B008 - frozen
        marks: tuple[str, ...] = (),
    ) -> Record:
        """Keep `files`, save the record, and tell the listener."""
        outcome = Outcome(metrics, problems=tuple(problems), raw=files)
        record = self.record(placed, Turn(0, False, ""), outcome, ended.status)
        record = structs.replace(record, marks=marks, suite=result)
        record = self.job.store.save(self.folder, record)
        self.job.session.emit(RunDone(self.job.session.host.name, to_plain(record)))
        return record


def ask_suite(job: RunJob, suite: Suite) -> Record:
    """Ask a suite and save a record with the checked answers.

    All questions share one session if the runner supports that; otherwise the program starts once
    for each question. A device that fails in the middle leaves answers that do not pass.
    """
    kit = kit_of(job)
    text = f"{len(suite.questions)} prompts of the suite {suite.name}"
    job.session.emit(StepStarted(job.session.host.name, "verify", job.word or text))
    made = _Verification(job, "suite")
    with made.logs() as logs:
        asking = _Asking(made, kit, suite, logs)
        placed, ended, answers = asking.together() or asking.one_by_one()
    result = judge_suite(suite, answers)
    marks = () if asking.greedy or not suite.greedy else (SAMPLED,)
    return made.save(placed, ended, result, _problems(ended, result), marks=marks)


def prepare_samples(builder: Builder) -> PreparedSamples | None:
    """Read the samples of the playbook before any device is contacted. Returns None without
    samples.

    Raises SuiteError for a bad sample, and InputError for a runner that cannot run samples.
    """
    use, runner = builder.playbook.verify, builder.runner
    if use is None:
        return None
    from fleet.verify.tensors import prepare  # noqa: PLC0415 - numpy, with `verify:` alone

    if isinstance(runner, RunsSamples):
        ends = runner.ends(Kit(builder.bundle, builder.playbook.run or RunSpec(runner.name)))
        return prepare(use, *(ends or (None, None)))
    if builder.playbook.run is None or getattr(runner, "needs_prompt", False):
        raise InputError(
            f"the runner {runner.name} does not run the samples of `verify:`",
            hint="use the runner ort or litert, or remove `verify:` from the playbook",
        )
    for sample in use.samples:
        if sample.inputs or not sample.expected:
            raise SuiteError(
                f"the runner {runner.name} takes its inputs from `run: options:`, not from samples",
                position=sample.position,
                hint="write only `expected:` into the sample, with the files that the run leaves",
            )
    return prepare(use, {}, None)


@dataclass(frozen=True)
class NodeUse:
    """The network that a device runs, and the network that its nodes are compared with."""

    device: Network
    reference: Network


def prepare_nodes(builder: Builder) -> NodeUse:
    """Read both networks before any device is contacted.

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
    made: _Verification, prepared: PreparedSamples, result: SuiteResult, use: NodeUse
) -> tuple[tuple[NodeDifference, ...], str]:
    """Run one sample with the tensors between the nodes as outputs.

    The sample is the first one that does not pass, or else sample 0. Returns the difference of each
    node, and the problem of the run, "" without a problem. Raises TypeError for a runner that does
    not show nodes.
    """
    job = made.job
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
    with made.logs("nodes-") as logs:
        _, ended = made.execute(start, "nodes", logs)
    archive, problem = runner.sample_outputs(start, ended)
    tensors, damage = arrays_of(archive)
    stored = {name.partition("/")[2]: value for name, value in tensors.items()}
    if not stored:
        return (), f"failed: no node could be seen: {problem or damage or 'no tensors came back'}"
    return compare_nodes(use.device, use.reference, inputs, stored), problem or damage


def ask_samples(job: RunJob, prepared: PreparedSamples, nodes: NodeUse | None = None) -> Record:
    """Run the samples on a device in one session, and save a record with the differences.

    With `nodes`, a second session reads the tensors between the nodes.
    """
    from fleet.verify.tensors import judge_samples, perplexity, recorded  # noqa: PLC0415 - numpy

    runner, kit = job.builder.runner, kit_of(job)
    text = f"{len(prepared.names)} samples"
    job.session.emit(StepStarted(job.session.host.name, "verify", job.word or text))
    made = _Verification(job, "samples")
    if isinstance(runner, RunsSamples):
        start = runner.run_samples(kit, prepared.archive)
    else:
        start = runner.start(kit)
        names = {name for row in prepared.expected for name in row}
        deep = (f"{folder}{name}" for name in sorted(names) for folder in ("", "*/", "*/*/"))
        start = replace(start, collect=(*start.collect, *deep))
    with made.logs() as logs:
        placed, ended = made.execute(start, "samples", logs)
    archive, problem = _outputs(runner, kit, start, ended, prepared)
    value = perplexity(prepared, archive)
    result = judge_samples(prepared, archive, problem, value)
    metrics = Metrics.of({} if value is None else {PERPLEXITY: Measure(value)})
    problems = [problem] if problem else []
    if nodes is not None:
        rows, trouble = _nodes_of(made, prepared, result, nodes)
        result = structs.replace(result, nodes=rows)
        problems += [trouble] if trouble else []
    kept = {"outputs.npz": recorded(prepared, archive)} if archive else {}
    return made.save(placed, ended, result, problems, files={**ended.files, **kept},
                     metrics=metrics)  # fmt: skip


def _outputs(
    runner: Runner, kit: Kit, start: Start, ended: Ended, prepared: PreparedSamples
) -> tuple[bytes, str]:
    """Return the outputs of the samples as an .npz, and the problem of the run."""
    from fleet.verify.tensors import outputs_in  # noqa: PLC0415 - numpy, for this alone

    if isinstance(runner, RunsSamples):
        return runner.sample_outputs(start, ended)
    problems = runner.read(start, kit, ended).problems
    return outputs_in(prepared.expected, ended.files), next(iter(problems), "")


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
        differences = unsteady([(f"repeat {n + 1}", result) for n, result in enumerate(mine)])
        if differences:
            raise AnswerError(
                f"the same inputs gave different answers: {'; '.join(differences[:3])}"
                + (f" and {len(differences) - 3} more" if len(differences) > 3 else ""),
                step="verify",
                hint="set `sampling: greedy` in the suite; if it is, the device is not "
                "deterministic: fleet doctor (examines the device)",
            )


class _Asking:
    """A suite being asked on one device.

    `greedy` is True if the runner takes the most likely token.
    """

    def __init__(self, made: _Verification, kit: Kit, suite: Suite, logs: tuple[Tee, Tee]) -> None:
        self._made, self._kit, self._suite, self._logs = made, kit, suite, logs
        self._runner = made.job.builder.runner
        self.greedy = self._runner.name in _GREEDY_ALONE

    def together(self) -> tuple[Placed, Ended, Sequence[SuiteAnswer]] | None:
        """Ask all questions in one run; None if the runner asks one question per run."""
        if not isinstance(self._runner, AsksSuites):
            return None
        start = self._runner.ask(self._kit, self._suite)
        if start is None:
            return None
        self.greedy = True
        placed, ended = self._made.execute(start, "suite", self._logs)
        return placed, ended, self._runner.answers(start, self._suite, ended)

    def one_by_one(self) -> tuple[Placed, Ended, Sequence[SuiteAnswer]]:
        """Start the runner once for each question; the place and end are those of the last run."""
        answers: list[SuiteAnswer] = []
        for number, question in enumerate(self._suite.questions):
            kit = replace(self._kit, run=self._run(question))
            start = self._runner.start(kit)
            placed, ended = self._made.execute(start, f"q{number}", self._logs)
            answers.append(_answer(question, self._runner.read(start, kit, ended), ended))
        return placed, ended, answers

    def _run(self, question: SuiteQuestion) -> RunSpec:
        if question.tokens:
            raise InputError(
                f"prompt {question.name} of the suite {self._suite.name} gives token ids, which "
                f"the runner {self._runner.name} does not take",
                hint="write `prompt:` with text, or use the runner genie",
            )
        return replace(self._made.job.run, prompt=question.prompt, max_tokens=question.max_tokens)


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
