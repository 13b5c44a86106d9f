"""The runner `exec`: any program; the playbook describes how to read its output."""

from __future__ import annotations

import copy
import json
import math
import mmap
import re
from pathlib import Path
from typing import Annotated, Literal

from msgspec import field

from fleet.config.values import After, Pattern
from fleet.device.texts import path_of
from fleet.model.bundle import KINDS, Bundle
from fleet.model.errors import InputError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Defaults, Options, OwnProgram, ending, parsed, program

_TEXT_BYTES = 1 << 16
_OF_FLEET = {"LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "DSP_LIBRARY_PATH"}
_FASTRPC = re.compile(rb"[acms]dsprpc|fastrpc|[Hh]exagon")
_QAIRT = re.compile(rb"Qnn|libGenie|Genie\.dll|SNPE|libSnpe")


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
    """A number in the output, found by `regex` or by `json` (keys joined with dots)."""

    metric: Annotated[
        str, Pattern(r"[a-z][a-z0-9_]{0,40}", "metric", "write it in lower case, like wall_ms")
    ]
    unit: str = ""
    regex: Annotated[str, After(_regex)] | None = None
    json_path: str | None = field(default=None, name="json")
    file: str = "stdout"
    required: bool = True


EnvName = Annotated[
    str, Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,99}", "name of a variable", "write it like LOG_LEVEL")
]


class ExecOptions(Options, frozen=True):
    """The options. `argv` and the values of `env` may contain {release}, {work} and {program}.

    Without `argv` the program starts without arguments.
    """

    argv: list[str] | None = None
    health: list[str] | None = None
    stdin: Literal["prompt", "none"] = "none"
    cwd: str = "bundle"
    collect: list[WorkFile] = field(default_factory=list)
    parse: list[Reading] = field(default_factory=list)
    text: Literal["stdout", "none"] = "stdout"
    env: dict[EnvName, str] = field(default_factory=dict)


class ExecRunner(OwnProgram):
    """A runner of the command in the playbook."""

    name = "exec"
    kinds = tuple(KINDS)
    options = ExecOptions
    default_for = ("files",)
    runtime: str | None = "exec"
    layout = Layout()

    def check(self, run: RunSpec) -> None:
        """Check the options, and that there is `argv` or a program."""
        options = parsed(ExecOptions, run.options, self.name)
        for name in sorted(_OF_FLEET & set(options.env)):
            raise InputError(
                f"`env` under `run: options:` sets {name}, but fleet sets this variable itself to "
                "the folders of the release",
                hint=f"remove {name} from `env:` in the playbook; name your libraries under `run: "
                "libraries:`",
            )
        if run.program is None and not options.argv:
            raise InputError(
                "the runner exec needs `program:` or `options: argv:` under `run:` in the playbook",
                hint="add to `run:` in the playbook: `program: build/my-benchmark`",
            )

    def without_qairt(self) -> ExecRunner:
        """Return the runner for a program that needs no QAIRT, so none is fetched or sent."""
        runner = copy.copy(self)
        runner.runtime = None
        return runner

    def uses_npu(self, _bundle: Bundle, run: RunSpec) -> bool:
        """Return False for a run without QAIRT that does not mention FastRPC either."""
        return self.runtime is not None or mentions(_FASTRPC, run)

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start of `options.health`; None if the playbook has none."""
        words = self._options(kit).health
        if words is None:
            return None
        options = self._options(kit)
        return Start(self._argv(kit, words), options.cwd, (), timeout, env=self._env(kit))

    def start(self, kit: Kit) -> Start:
        """Return the start of the declared argv."""
        options = self._options(kit)
        return Start(
            self._argv(kit, options.argv or ["{program}"]),
            options.cwd,
            tuple(options.collect),
            kit.run.timeout,
            kit.run.prompt.encode(),
            feeds_prompt=options.stdin == "prompt",
            env=self._env(kit),
        )

    def _options(self, kit: Kit) -> ExecOptions:
        return parsed(ExecOptions, kit.options, self.name)

    def _env(self, kit: Kit) -> dict[str, str]:
        values = self._options(kit).env
        return dict(zip(values, self._argv(kit, list(values.values())), strict=True))

    def _argv(self, kit: Kit, words: list[str]) -> tuple[str, ...]:
        return tuple(word.replace("{program}", program(kit.run, self.layout)) for word in words)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the declared numbers; a required number that is missing is a problem."""
        options = self._options(kit)
        problems = ending(start, ended)
        numbers: dict[str, Measure] = {}
        for reading in options.parse:
            value = _value(reading, ended)
            if value is not None:
                numbers[reading.metric] = Measure(value, reading.unit)
            elif reading.required and not problems:
                problems.append(f"unreadable: {reading.file} does not contain {reading.metric}")
        text = (
            ended.stdout[:_TEXT_BYTES].decode("utf-8", "replace")
            if options.text == "stdout"
            else ""
        )
        return Outcome(Metrics.of(numbers), text, None, tuple(problems), dict(ended.files))


def uses_qairt(run: RunSpec) -> bool:
    """Return False if no program, library or word of the run mentions a library of QAIRT.

    A program that opens a library by name contains the name. A program on the device could be
    anything, so the result is then True.
    """
    return run.program is None or mentions(_QAIRT, run)


def mentions(what: re.Pattern[bytes], run: RunSpec) -> bool:
    """Return whether the options, the program or a library of a run contain a match."""
    words = json.dumps(dict(run.options)).encode()
    paths = filter(None, [run.program, *run.libraries])
    return what.search(words) is not None or any(_contains(path, what) for path in paths)


def _contains(path: Path, what: re.Pattern[bytes]) -> bool:
    try:
        if not path.stat().st_size:
            return False
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return what.search(data) is not None
    except OSError:
        return True


class RuntimeRunner(Defaults):
    """A runtime without a bundle, for users who log in; only the probe is started."""

    name = "runtime"
    kinds = ("runtime",)
    default_for = ("runtime",)
    runtime: str | None = "runtime"
    layout = Layout()

    def check(self, run: RunSpec) -> None:
        """Raise InputError for every `run:`."""
        raise InputError(
            "a playbook without `bundle:` runs nothing",
            hint=f"write `bundle: FOLDER` in the playbook, or remove `run:` ({run.runner})",
        )

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the program that opens a session."""
        return (file_ref(path_of("fleet_session.py"), "run/fleet_session.py"),)

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start of a program that creates a backend and a device with libQnnHtp."""
        program = ("python3", "-I", "{release}/run/fleet_session.py")
        return Start((*program, "{release}/lib/libQnnHtp.so", f"{timeout:g}"), "", (), timeout)

    def start(self, kit: Kit) -> Start:
        """Raise InputError. Never called, because `check` refuses every `run:`."""
        self.check(kit.run)
        raise AssertionError

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the problems of the exit status, without metrics."""
        return Outcome(problems=tuple(ending(start, ended)))


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
