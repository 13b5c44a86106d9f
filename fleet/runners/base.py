"""The interface of a runner: its files, its starts, and the reading of its outcome.

docs/runners.md shows a complete runner in 40 lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fleet.model.record import Metrics, Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.model.bundle import Bundle
    from fleet.model.files import FileRef
    from fleet.model.playbook import RunSpec
    from fleet.model.suite import Suite, SuiteAnswer


@dataclass(frozen=True)
class Layout:
    """The folders of a release: libraries of the CPU, libraries of the DSP, programs, the bundle.

    An empty name is the release folder itself. `FLAT` puts everything there, for runners that look
    for their files next to themselves.
    """

    lib: str = "lib"
    dsp: str = "dsp"
    bin: str = "bin"
    bundle: str = "bundle"

    def named(self, name: str) -> str:
        """Return the name of a file of a runtime, such as `lib/x.so`, in this layout."""
        folder, _, rest = name.partition("/")
        known = {"lib": self.lib, "dsp": self.dsp, "bin": self.bin, "bundle": self.bundle}
        return "/".join(filter(None, [known.get(folder, folder), rest]))


FLAT = Layout("", "", "", "")


@dataclass(frozen=True)
class Kit:
    """The input of a runner: the bundle, `run:` of the playbook, and the properties of the device.

    `has_tool` is True if the runtime contains the program of this runner. `dsp` is True if the
    device has a Hexagon (False for an emulator), of the version `arch` (v73; "" if unknown).
    `windows` is True if the device runs Windows. `machine` is the output of `uname -m` on the
    device. `runtime_root` is the QAIRT runtime on this workstation, in the layout of an SDK.

    `build_id` is that of the QAIRT runtime. `site` returns the files of Python packages for the
    device, as `site/...`. Both are set for `files` only, and `site` only for runners with `python =
    True`.
    """

    bundle: Bundle
    run: RunSpec
    has_tool: bool = False
    dsp: bool = True
    arch: str = ""
    machine: str = ""
    windows: bool = False
    runtime_root: Path | None = None
    build_id: str = ""
    site: Callable[[tuple[str, ...]], tuple[FileRef, ...]] | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """The options `run.options` of the playbook."""
        return self.run.options

    @property
    def backends(self) -> tuple[str, str]:
        """The name of QNN's HTP backend library on the device, and its name on the other system."""
        names = "libQnnHtp.so", "QnnHtp.dll"
        return (names[1], names[0]) if self.windows else names

    @property
    def emulator(self) -> bool:
        """True if the HTP emulator runs the model."""
        return not self.dsp and not self.windows


@dataclass(frozen=True)
class Start:
    """A start of a program on a device. `config` is the text of a configuration for this run only.

    `cwd` is relative to the release. `argv` and values of `env` may contain `{release}` and
    `{work}` (the work folder of this run, which contains prompt.txt and config.json). `collect` are
    the files of the work folder with the outcome; `*` matches several.

    If `feeds_prompt`, the prompt goes to standard input. `timeout` is in seconds. `marks` are
    remarks for the records of these runs, such as profiled.
    """

    argv: tuple[str, ...]
    cwd: str
    collect: tuple[str, ...] = ()
    timeout: float = 300.0
    prompt: bytes = b""
    config: str = ""
    feeds_prompt: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """The end of a start on the device: exit status, output streams, collected files.

    `stdout` and `stderr` have at most their first MiB. `seconds` is the time from the start to the
    end, measured on this workstation.
    """

    status: int
    stdout: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    stderr: bytes = b""
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. `raw` are files to keep unchanged: name → content.

    `problems` are the reasons why the run does not count. `finish` is eos, token-limit or None.
    `ops` are the times of single operations of the graph. `marks` are remarks for the record: cut,
    no-token-limit.
    """

    metrics: Metrics = field(default_factory=Metrics)
    text: str = ""
    finish: str | None = None
    problems: tuple[str, ...] = ()
    raw: Mapping[str, bytes] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()
    marks: tuple[str, ...] = ()


def reached_limit(run: RunSpec) -> tuple[list[str], tuple[str, ...]]:
    """Return (problems, marks) of a run that generated all of `max_tokens`.

    Rates are measured with a fixed number of tokens, so the run counts and is marked `cut`. The
    playbook can make it a problem.
    """
    text = f"cut: the output reached the token limit of {run.max_tokens}"
    return ([], (text,)) if run.token_limit_counts else ([text], ())


@runtime_checkable
class Runner(Protocol):
    """A way to run a bundle on a device. `fleet.runners.registry.runner` finds it by name."""

    @property
    def name(self) -> str:
        """The name in `run: runner:` of a playbook."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of bundles that it can run."""

    @property
    def runtime(self) -> str | None:
        """The row of runtime_files.yaml with the libraries it needs; None if it needs no QAIRT."""

    @property
    def layout(self) -> Layout:
        """The places of its files in a release."""

    @property
    def python(self) -> bool:
        """True if it brings packages for the Python of the device."""

    @property
    def windows(self) -> Layout | None:
        """The places of its files on Windows; None if Windows is not supported."""

    def check(self, run: RunSpec) -> None:
        """Check `run:` of a playbook. Raises InputError."""
        ...

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the files that the release needs besides runtime and bundle, under release
        names.
        """
        ...

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return a start that opens a real session and ends; None if the runner has none.

        The exit status 0 means that the session opened.
        """
        ...

    def start(self, kit: Kit) -> Start:
        """Return the start of one run."""
        ...

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the outcome of a run. Never raises for bad output of the device: it is a
        problem.
        """
        ...


@runtime_checkable
class AsksSuites(Protocol):
    """A runner that asks all questions of a suite in one session.

    For other runners, fleet starts the runner once for each question.
    """

    def ask(self, kit: Kit, suite: Suite) -> Start | None:
        """Return the start that asks the whole suite; None if this kit cannot."""
        ...

    def answers(self, start: Start, suite: Suite, ended: Ended) -> Sequence[SuiteAnswer]:
        """Return the answers in any order, unchecked; some may be missing. Never raises."""
        ...


Ends = Mapping[str, tuple[str, tuple[int | str, ...]]]  # tensor → type and shape


@runtime_checkable
class RunsSamples(Protocol):
    """A runner that runs all samples of `verify:` in one session."""

    def ends(self, kit: Kit) -> tuple[Ends, Ends] | None:
        """Return the inputs and outputs of the model; None if they are not known here."""
        ...

    def run_samples(self, kit: Kit, archive: bytes) -> Start:
        """Return the start that runs an .npz of `NUMBER/input` arrays."""
        ...

    def sample_outputs(self, start: Start, ended: Ended) -> tuple[bytes, str]:
        """Return the .npz of `NUMBER/output` arrays, and the problem of the run. Never raises."""
        ...


@runtime_checkable
class ShowsNodes(RunsSamples, Protocol):
    """A runner that can give the tensors between the nodes of an ONNX network."""

    def network(self, kit: Kit) -> Path:
        """Return the ONNX file that runs. Raises InputError for one that was compiled."""
        ...

    def run_nodes(self, kit: Kit, archive: bytes, tensors: Sequence[Sequence[str]]) -> Start:
        """Return the start that runs `archive` with each group of tensors as outputs."""
        ...
