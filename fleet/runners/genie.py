"""The runner `genie`: genie-t2t-run if the runtime has it, else fleet's own script over
libGenie.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

from msgspec import structs

from fleet.bundles.genie import genie_scripts
from fleet.bundles.paths import clean_name, inside
from fleet.config.values import Pattern
from fleet.device.texts import path_of
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError, RunnerError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.model.suite import Suite, SuiteAnswer
from fleet.profiles.formats.genie import generated_tokens, parse_profile, printed
from fleet.runners.base import FLAT, Ended, Kit, Layout, Outcome, Start, reached_limit
from fleet.runners.options import Defaults, Options, has_program, own_files, parsed

Encoded = Annotated[
    str,
    Pattern(
        r"[^,]+(,u?int(8|16),[-+0-9.e]+,-?[0-9]+)?",
        "file of embeddings",
        "write FILE, or FILE,TYPE,SCALE,OFFSET like table.bin,uint8,0.05,-128",
    ),
]
Lora = Annotated[
    str,
    Pattern(
        r"[^,\s]+(,[^,\s]+,-?[0-9.]+)*",
        "LoRA adapter",
        "write ADAPTER, or ADAPTER,ALPHA,STRENGTH like summary,alpha,0.5",
    ),
]
SCRIPT, TOOL_SCRIPT = "run/fleet_genie.py", "run/t2t_run.sh"
OUTCOME, PROFILE = "outcome.json", "profile.json"
_PROMPT = ("--prompt_file", "{work}/prompt.txt")
_TIMEOUT_STATUS = (124, 137)
_CONTEXT_EXCEEDED = 4
_BETWEEN = re.compile(rb"\[BEGIN\]: ?(.*?)(?:\[END\]|\[COMPLETE\]|\[ABORT\]|$)", re.DOTALL)
OFF_NPU = {"QnnGenAiTransformer", "QnnGpu", "QnnCpu"}
_UNLIMITED = b"[fleet: this libGenie refuses max-num-tokens"
_STATUS = {
    10: "failed: Genie rejected the configuration of the bundle",
    11: "failed: the NPU session could not be opened",
    12: "failed: the query failed",
    13: "cut: the output filled the context length of the model",
}


class GenieOptions(Options, frozen=True):
    """The options of a dialog.

    `lora` is the adapter to apply, followed by the strength of each alpha tensor, in the form of
    genie-t2t-run. `embedding_file` and `tokens_file` are the input in place of a prompt.
    `embedding_table` is the table for the tokens that follow. All of them are files of the bundle.
    The embeddings are followed by `,TYPE,SCALE,OFFSET` if they are quantized.
    """

    lora: Lora | None = None
    embedding_file: Encoded | None = None
    embedding_table: Encoded | None = None
    tokens_file: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files of the bundle that the options use."""
        given = (self.embedding_file, self.embedding_table, self.tokens_file)
        return tuple(text.partition(",")[0] for text in given if text)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options for the command line of genie-t2t-run."""
        keys = ("lora", "embedding_file", "embedding_table", "tokens_file")
        given = {key: getattr(self, key) for key in keys}
        return tuple(word for key, text in given.items() if text for word in (f"--{key}", text))


class GenieRunner(Defaults):
    """The runner of dialog bundles of Qualcomm Genie."""

    name = "genie"
    kinds = ("genie",)
    options = GenieOptions
    default_for = ("genie",)
    needs_prompt = True
    instead_of_prompt = ("embedding_file", "tokens_file")
    formats = ("genie",)
    runtime: str | None = "genie"
    layout = Layout()
    windows = FLAT  # tools find skel and catalog in their own folder and in the working folder

    def check(self, run: RunSpec) -> None:
        """Check the options, and that the playbook names no program, which the runtime has."""
        super().check(run)
        has_program(run, self.name, "the program of the runtime", "`program:`")

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the script that starts genie-t2t-run, or fleet's own runner, and user files.

        fleet's own runner is used if the runtime does not have genie-t2t-run.
        """
        own = own_files(kit.run, self.windows if kit.windows else self.layout)
        own = (*own, *self._inputs(kit))
        if _is_script(kit.bundle):
            return own
        if kit.has_tool and kit.windows:
            return own
        script = TOOL_SCRIPT if kit.has_tool else SCRIPT
        return (file_ref(path_of(script.removeprefix("run/")), script, executable=True), *own)

    def features(self, bundle: Bundle, _run: RunSpec) -> tuple[str, ...]:
        """Return the backends of all engines, and genie-app for a pipeline."""
        backends = {engine.backend for engine in bundle.engines} - {None, "QnnHtp"}
        app = ("genie-app",) if _is_script(bundle) else ()
        return (*sorted(text for text in backends if text), *app)

    def uses_npu(self, bundle: Bundle, _run: RunSpec) -> bool:
        """Return False if all engines run on the CPU or GPU."""
        engines = {engine.backend for engine in bundle.engines}
        return _is_script(bundle) or not engines or bool(engines - OFF_NPU)

    def _inputs(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the files of the options that no configuration names.

        Raises InputError for input that the dialog cannot accept.
        """
        options = parsed(GenieOptions, kit.options, self.name)
        _refuse_other_input(kit, options)
        sent, files = {file.name for file in kit.bundle.files}, []
        for name in options.files:
            path = inside(kit.bundle.root, clean_name(name, "`run: options:`"), "`run: options:`")
            if path is None:
                raise InputError(
                    f"`run: options:` uses the file {name}, but the bundle does not contain this "
                    "file",
                    hint=f"copy {name} into {kit.bundle.root}, or correct its name in the playbook",
                )
            if name not in sent:
                files.append(file_ref(path, f"bundle/{name}"))
        return tuple(files)

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Create a dialog: backend, device and context from the real context binaries."""
        if _is_script(kit.bundle):
            return None  # a script is one complete run; there is nothing shorter
        if kit.has_tool:
            run = replace(kit.run, prompt="hi", max_tokens=1, timeout=timeout)
            return self.start(replace(kit, run=run))
        argv = (*self._own(kit.bundle), "--check", "--timeout", f"{timeout:g}")
        return Start(argv, "bundle", (OUTCOME,), timeout)

    def start(self, kit: Kit) -> Start:
        """Return the start of one query; the token limit is always set."""
        run, bundle = kit.run, kit.bundle
        prompt = run.prompt.encode()
        if _is_script(bundle):
            return _pipeline(kit)
        options = parsed(GenieOptions, kit.options, self.name)
        if not kit.has_tool:
            argv = (
                *self._own(bundle),
                *("--prompt-file", "{work}/prompt.txt"),
                *("--max-tokens", str(run.max_tokens)),
                *("--timeout", f"{run.timeout:g}"),
            )
            return Start(argv, "bundle", (OUTCOME,), run.timeout, prompt)
        config = copy.deepcopy(bundle.config)
        config["dialog"].pop("max-num-tokens", None)  # the script removes the last key
        config["dialog"]["max-num-tokens"] = run.max_tokens
        asked = () if options.embedding_file or options.tokens_file else _PROMPT
        argv = (*asked, *options.arguments)
        if kit.windows:
            argv = ("{release}/genie-t2t-run.exe", *argv, "-c", "{work}/config.json")
            argv = (*argv, "--profile", "{work}/profile.json")
        else:
            tool = "{release}/bin/genie-t2t-run"
            argv = ("sh", "{release}/" + TOOL_SCRIPT, "{work}", tool, *argv)
        folder = "" if kit.windows else "bundle"
        return Start(argv, folder, (PROFILE,), run.timeout, prompt, json.dumps(config))

    def ask(self, kit: Kit, suite: Suite) -> Start | None:
        """Return the start of all questions in one dialog.

        Returns None with genie-t2t-run, which accepts one question per start, and for a pipeline.
        """
        if kit.has_tool or _is_script(kit.bundle):
            return None
        rows = [
            {"name": q.name, "prompt": q.prompt, "tokens": q.tokens, "max_tokens": q.max_tokens}
            for q in suite.questions
        ]
        argv = (*self._own(kit.bundle), "--suite", "{work}/prompt.txt")
        argv = (*argv, "--timeout", f"{kit.run.timeout:g}", *(("--greedy",) * suite.greedy))
        limit = kit.run.timeout * (len(rows) + 1)
        return Start(argv, "bundle", (OUTCOME,), limit, json.dumps(rows).encode())

    def answers(self, start: Start, suite: Suite, ended: Ended) -> list[SuiteAnswer]:
        """Return the answers of the dialog, with the token counts of Genie's own profile."""
        lines = ended.files.get(start.collect[0], b"").decode("utf-8", "replace").splitlines()
        limits = {question.name: question.max_tokens for question in suite.questions}
        rows, profile = [], ""
        for line in lines:
            try:
                row = json.loads(line)
                if "profile" in row:
                    profile = str(row["profile"])
                elif row["name"] in limits:
                    rows.append((str(row["name"]), str(row["text"]), int(row["query"]), row))
            except (ValueError, KeyError, TypeError):
                break
        counts = generated_tokens(profile)
        counts = counts if len(counts) == len(rows) else [None] * len(rows)
        return [
            SuiteAnswer(
                name,
                text,
                faults=() if code == 0 else (_query_fault(code),),
                finish=None if n is None else "token-limit" if n >= limits[name] else "eos",
                generated_tokens=n,
                seconds=seconds if isinstance(seconds := row.get("seconds"), float) else None,
            )
            for (name, text, code, row), n in zip(rows, counts, strict=True)
        ]

    def _own(self, bundle: Bundle) -> tuple[str, ...]:
        return (
            *("python3", "{release}/" + SCRIPT),
            *("--config", bundle.config_name),
            *("--outcome", "{work}/" + OUTCOME),
        )

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return metrics and text, and whether the run was complete and on the NPU."""
        run, bundle = kit.run, kit.bundle
        problems: list[str] = []
        if bundle.backend not in {None, "QnnHtp"}:
            problems.append(f"cpu-fallback: backend {bundle.backend} does not run on the NPU")
        beside = {engine.role: engine.backend for engine in bundle.engines}
        marks = tuple(
            f"partly-cpu: the {role} engine uses {backend}"
            for role, backend in beside.items()
            if role and backend not in {None, "QnnHtp", bundle.backend}
        )
        if ended.status in _TIMEOUT_STATUS:
            problems.append(f"cut: the program did not end within {start.timeout:g} s")
        elif ended.status:
            problems.append(_STATUS.get(ended.status, f"failed: exit status {ended.status}"))
        if _is_script(bundle):
            return _pipeline_outcome(ended, tuple(problems), marks)
        text, profile = self._split(start, ended)
        metrics = Metrics()
        if profile:
            try:
                metrics = parse_profile(profile)
            except RunnerError as error:
                problems.append(f"failed: {error.message}")
        elif kit.has_tool:
            metrics = printed(ended.stdout.decode("utf-8", "replace"))
        if not problems and metrics.generated_tokens is None:
            problems.append("cut: Genie ended before it wrote the times of the query")
        unlimited = _UNLIMITED in ended.stderr
        finish = _finish(metrics, run, unlimited=unlimited)
        marks += ("no-token-limit",) if unlimited else ()
        if finish == "token-limit":
            more, limit = reached_limit(run)
            problems, marks = [*problems, *more], (*marks, *limit)
        raw = {PROFILE: profile.encode()} if profile else {}
        return Outcome(metrics, text, finish, tuple(problems), raw, marks=marks)

    def _split(self, start: Start, ended: Ended) -> tuple[str, str]:
        """Return (generated text, Genie's profile as text)."""
        collected = ended.files.get(start.collect[0], b"")
        if start.collect == (PROFILE,):
            match = _BETWEEN.search(ended.stdout)
            text = match[1] if match else ended.stdout
            return text.decode("utf-8", "replace").strip(), collected.decode("utf-8", "replace")
        try:
            outcome = json.loads(collected)
            return str(outcome["text"]), str(outcome.get("profile", ""))
        except (ValueError, KeyError, TypeError):
            return ended.stdout.decode("utf-8", "replace"), ""


def _is_script(bundle: Bundle) -> bool:
    """Return True for a pipeline: a genie-app script starts it, not a configuration."""
    return not bundle.config_name.endswith(".json")


def _pipeline(kit: Kit) -> Start:
    """Return the start of genie-app in the folder of the bundle.

    The script of the bundle names prompts and images.
    """
    tool = "{release}/genie-app.exe" if kit.windows else "{release}/bin/genie-app"
    folder = "" if kit.windows else "bundle"
    return Start((tool, "-s", kit.bundle.config_name), folder, (), kit.run.timeout)


def _pipeline_outcome(ended: Ended, problems: tuple[str, ...], marks: tuple[str, ...]) -> Outcome:
    output = ended.stdout.decode("utf-8", "replace")
    pieces = [piece.decode("utf-8", "replace").strip() for piece in _BETWEEN.findall(ended.stdout)]
    wall = Measure(round(ended.seconds * 1000, 1), "ms, of this workstation's clock")
    metrics = printed(output)
    metrics = structs.replace(metrics, others={**metrics.others, "wall_ms": wall})
    return Outcome(metrics, "\n".join(pieces) or output.strip(), None, problems, marks=marks)


def _refuse_other_input(kit: Kit, options: GenieOptions) -> None:
    """Raise InputError for a dialog that does not accept the input of the run."""
    bundle = kit.bundle
    name, scripts = bundle.config_name, genie_scripts(bundle.root)
    pipeline = f"bundle: {{path: {bundle.root.name}, config: {(scripts or ['SCRIPT'])[0]}}}"
    if _is_script(bundle):
        if options.arguments:
            raise InputError(
                f"{name} is a genie-app script, which takes none of the options "
                f"{', '.join(key for key, value in structs.asdict(options).items() if value)}",
                hint="write adapters and inputs into the script, and remove them from `run: "
                "options:`",
            )
        return
    dialog = bundle.config.get("dialog")
    if not isinstance(dialog, Mapping):
        raise InputError(
            f"{name} configures one node of a pipeline, and genie-t2t-run runs dialogs only",
            hint=f"choose the genie-app script of the pipeline: {pipeline}",
        )
    if options.arguments and not kit.has_tool:
        raise InputError(
            f"`{options.arguments[0].removeprefix('--')}` under `run: options:` needs "
            "genie-t2t-run, but the runtime does not contain this program",
            hint="add a QAIRT SDK, which has genie-t2t-run: fleet runtime add SDK",
        )
    adapters = sorted(_adapters(dialog))
    if options.lora and options.lora.partition(",")[0] not in adapters:
        raise InputError(
            f"`lora` under `run: options:` is {options.lora.partition(',')[0]}, but {name} has "
            f"{'only the adapters ' + ', '.join(adapters) if adapters else 'no adapters'}",
            hint="correct the name of the adapter in the playbook",
        )
    embedding = dialog.get("embedding")
    text = not isinstance(embedding, Mapping) or {"lut-path", "dlc-path"} & set(embedding)
    if text or options.embedding_file or options.tokens_file:
        return
    raise InputError(
        f"the dialog of {name} takes embeddings, not text: its section `embedding` has no look-up "
        "table (lut-path)",
        hint=f"run the whole pipeline: {pipeline}"
        if scripts
        else "give the embeddings of a prompt as a file of the bundle, under `run: options:`: "
        "`embedding_file: FILE`",
    )


def _adapters(value: object) -> Iterator[str]:
    """Yield the names of the LoRA adapters and groups, in any engine."""
    if isinstance(value, list):
        for item in value:
            yield from _adapters(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in {"adapters", "groups"} and isinstance(item, list):
                named = [part for part in item if isinstance(part, Mapping) and "name" in part]
                yield from (str(part["name"]) for part in named)
            else:
                yield from _adapters(item)


def _query_fault(code: int) -> str:
    if code == _CONTEXT_EXCEEDED:
        return "no stop: the answer filled the context length of the model"
    return f"no answer: the query failed with Genie status {code}"


def _finish(metrics: Metrics, run: RunSpec, *, unlimited: bool) -> str | None:
    if metrics.generated_tokens is None:
        return None
    limited = not unlimited and metrics.generated_tokens >= run.max_tokens
    return "token-limit" if limited else "eos"
