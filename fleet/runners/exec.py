"""Runner `exec`: any program of yours; you say how its output is read."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Literal

from msgspec import field

from fleet.config.shape import After
from fleet.config.values import Pattern
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Options, OwnProgram, ending, parsed, program

_TEXT_BYTES = 1 << 16


def _regex(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise InputError(
            f"'{text}' is not a valid regular expression: {error}", hint="correct the expression"
        ) from error
    if groups != 1:
        raise InputError(
            f"'{text}' must have exactly one (group), which matches the number",
            hint="write it like `rate: ([0-9.]+)`",
        )
    return text


def _relative(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._*?/-]{0,200}", text) or ".." in text:
        raise InputError(
            f"'{text}' is not the name of a file in the work folder",
            hint="use letters, digits and . _ - * ? /",
        )
    return text


WorkFile = Annotated[str, After(_relative)]


class Reading(Options, frozen=True, kw_only=True):
    """One number of the output: by `regex`, or by `json` (keys joined with dots)."""

    metric: Annotated[
        str, Pattern(r"[a-z][a-z0-9_]{0,40}", "metric", "write it in lower case, like decode_tps")
    ]
    unit: str = ""
    regex: Annotated[str, After(_regex)] | None = None
    json_path: str | None = field(default=None, name="json")
    file: str = "stdout"
    required: bool = True


class ExecOptions(Options, frozen=True):
    """`argv` may hold {release}, {work} and {program}; without it the program alone starts."""

    argv: list[str] | None = None
    health: list[str] | None = None
    stdin: Literal["prompt", "none"] = "none"
    cwd: str = "bundle"
    collect: list[WorkFile] = field(default_factory=list)
    parse: list[Reading] = field(default_factory=list)
    text: Literal["stdout", "none"] = "stdout"


class ExecRunner(OwnProgram):
    """Starts what the playbook says."""

    name = "exec"
    kinds = ("files", "qnn", "genie", "mllm", "executorch", "llama.cpp")
    runtime: str | None = "exec"
    layout = Layout()

    def check(self, run: RunSpec) -> None:
        """argv or program; options."""
        options = parsed(ExecOptions, run.options, self.name)
        if run.program is None and not options.argv:
            raise InputError(
                "the runner exec needs `program:` or `options: argv:` under `run:` in the playbook",
                hint="add to `run:` in the playbook: `program: build/my-benchmark`",
            )

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """`options.health`, where the playbook has one."""
        words = self._options(kit).health
        if words is None:
            return None
        return Start(self._argv(kit, words), self._options(kit).cwd, (), timeout)

    def start(self, kit: Kit) -> Start:
        """The declared argv."""
        options = self._options(kit)
        return Start(
            self._argv(kit, options.argv or ["{program}"]),
            options.cwd,
            tuple(options.collect),
            kit.run.timeout,
            kit.run.prompt.encode(),
            feeds_prompt=options.stdin == "prompt",
        )

    def _options(self, kit: Kit) -> ExecOptions:
        return parsed(ExecOptions, kit.options, self.name)

    def _argv(self, kit: Kit, words: list[str]) -> tuple[str, ...]:
        return tuple(word.replace("{program}", program(kit.run, self.layout)) for word in words)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """The declared numbers; one that is required and not there is a problem."""
        options = self._options(kit)
        problems = ending(start, ended)
        found: dict[str, Measure] = {}
        for reading in options.parse:
            value = _value(reading, ended)
            if value is not None:
                found[reading.metric] = Measure(value, reading.unit)
            elif reading.required and not problems:
                problems.append(f"unreadable: {reading.file} does not contain {reading.metric}")
        text = (
            ended.stdout[:_TEXT_BYTES].decode("utf-8", "replace")
            if options.text == "stdout"
            else ""
        )
        return Outcome(Metrics.of(found), text, None, tuple(problems), dict(ended.files))


def _value(reading: Reading, ended: Ended) -> float | None:
    streams = {"stdout": ended.stdout, "stderr": ended.stderr}
    data = streams.get(reading.file, ended.files.get(reading.file))
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    if reading.regex is not None:
        match = re.search(reading.regex, text)
        return _number(match[1]) if match else None
    try:
        node = json.loads(text)
        for key in (reading.json_path or "").split("."):
            node = node[int(key)] if isinstance(node, list) else node[key]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return _number(node)


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
