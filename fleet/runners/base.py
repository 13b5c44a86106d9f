"""The interface of a runner: what it brings, what it starts, how its outcome is read.

docs/runners.md shows a whole one in 40 lines.
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
    """Folders of a release: libraries of the CPU, libraries of the DSP, programs, the bundle.

    "" is the release folder itself; `FLAT` puts everything there, for runners that look for
    their files beside themselves.
    """

    lib: str = "lib"
    dsp: str = "dsp"
    bin: str = "bin"
    bundle: str = "bundle"

    def named(self, name: str) -> str:
        """`lib/x.so` of a runtime's file list in this layout."""
        folder, _, rest = name.partition("/")
        known = {"lib": self.lib, "dsp": self.dsp, "bin": self.bin, "bundle": self.bundle}
        return "/".join(filter(None, [known.get(folder, folder), rest]))


FLAT = Layout("", "", "", "")


@dataclass(frozen=True)
class Kit:
    """What a runner works with: the bundle, the `run:` of the playbook, what the device gets.

    `has_tool`: the runtime brings the program of this runner. `dsp`: the device has a Hexagon
    (False for an emulator), of the version `arch` (v73; "" if unknown). `windows`: the device
    runs Windows. `machine` is what uname -m says there. `runtime_root` is the QAIRT runtime on
    this workstation, in the layout of an SDK.
    `build_id` is that of the QAIRT runtime; `site` gives the files of Python packages for the
    device, as `site/...`; both are there for `files` only, `site` for runners with
    `python = True`.
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
        """`run.options` of the playbook."""
        return self.run.options

    @property
    def backends(self) -> tuple[str, str]:
        """The library of QNN's HTP backend by its name on the device, and on the other system."""
        names = "libQnnHtp.so", "QnnHtp.dll"
        return (names[1], names[0]) if self.windows else names

    @property
    def emulator(self) -> bool:
        """True if the HTP emulator runs the model."""
        return not self.dsp and not self.windows


@dataclass(frozen=True)
class Start:
    """One start on a device. `config` is the text of a configuration for this run only.

    `cwd` is relative to the release; `argv` and values of `env` may hold `{release}` and
    `{work}` (the work folder of this run, which has prompt.txt and config.json). `collect` are
    files of the work folder that hold the outcome, with * for several. `feeds_prompt`: the
    prompt goes to standard input. `timeout` in seconds. `marks` are remarks on the runs that it
    makes, for their records: profiled.
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
    """How a start ended on the device: exit status, the streams, the collected files.

    `stdout` and `stderr` hold at most their first MiB. `seconds` is the time from the start to the
    end as this workstation saw it.
    """

    status: int
    stdout: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    stderr: bytes = b""
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a run gave. `raw` are files to keep as they are: name → content.

    `problems` says why it does not count; `finish` is eos, token-limit or None; `ops` are what
    single operations of the graph took. `marks` are remarks for the record: cut,
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

    A fixed number of tokens is how a rate is measured, so the run counts and is marked `cut`; the
    playbook can make it a problem.
    """
    text = f"cut: the output reached the token limit of {run.max_tokens}"
    return ([], (text,)) if run.token_limit_counts else ([text], ())


@runtime_checkable
class Runner(Protocol):
    """One way to run a bundle on a device. Found by name: see `fleet.runners.registry.runner`."""

    @property
    def name(self) -> str:
        """What `run: runner:` of a playbook says."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of bundles that it can run."""

    @property
    def runtime(self) -> str | None:
        """Row of runtime_files.yaml whose libraries it needs; None: no QAIRT."""

    @property
    def layout(self) -> Layout:
        """Where its files are in a release."""

    @property
    def python(self) -> bool:
        """Whether it brings packages for the Python of the device."""

    @property
    def windows(self) -> Layout | None:
        """Where its files are on Windows; None: it is not done there."""

    def check(self, run: RunSpec) -> None:
        """Look at `run:` of a playbook. Raises InputError."""
        ...

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Files that go into the release beside runtime and bundle, under release names."""
        ...

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Opens a real session and ends; status 0 means that it opened. None: it cannot."""
        ...

    def start(self, kit: Kit) -> Start:
        """One run."""
        ...

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """What the run gave. Never raises for bad output of the device: that is a problem."""
        ...


@runtime_checkable
class AsksSuites(Protocol):
    """A runner that asks all questions of a suite in one session. For others, fleet starts the
    runner once for each question.
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
