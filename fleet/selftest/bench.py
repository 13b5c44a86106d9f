"""The shared state of the rungs on one device: its probe, a folder, and releases in it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fleet.data import shipped
from fleet.doctor.seen import Seen
from fleet.doctor.session import GRACE, SECONDS, TINY_QAIRT, session_argv, told_by
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.deploy.switch import carry_out
from fleet.engine.run.start import execute, place
from fleet.engine.session import Session
from fleet.engine.system.provision import ask_system
from fleet.model.command import Command
from fleet.model.errors import InputError
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, SendBlobs, StageRelease
from fleet.model.playbook import Playbook, RunSpec, RuntimeSpec
from fleet.model.runtime import Runtime, version_key
from fleet.model.system import SystemSpec, SystemState
from fleet.ops.release import release_dir
from fleet.runners.base import Ended, Outcome, Start
from fleet.runtimes.store import RuntimeStore
from fleet.selftest.ladder import Undecided

RUN_SECONDS = 120.0
BULK_BYTES = 256 << 20
_V73 = "v73"  # the arch for which fleet's tiny models are compiled


@dataclass
class SessionWords:
    """The result of a session with libQnnHtp: `steps` are (call, code, text), `load` a load
    error.
    """

    steps: list[tuple[str, int, str]]
    load: str
    words: str

    def code(self, call: str) -> int | None:
        """Return the code of a call, None if it was not reached."""
        return next((code for name, code, _ in self.steps if name == call), None)

    @property
    def failed(self) -> str:
        """The first failure, "" if there is none."""
        wrong = next((f"{n}: {c} {t}".strip() for n, c, t in self.steps if c), "")
        return self.load or wrong


@dataclass
class Bench:
    """A device under a lease for the selftest.

    `folder` is a folder of the selftest on the device that is removed at the end. `bulk` is the
    size of the trial transfer in bytes.
    """

    session: Session
    sample: Seen
    store: RuntimeStore
    runtime: Runtime | None
    run_id: str
    bulk: int = BULK_BYTES
    work: Path = field(default_factory=Path)

    @property
    def facts(self) -> Facts:
        """The facts of the device."""
        return self.sample.facts

    @cached_property
    def system(self) -> SystemState:
        """The observed system, as for provisioning. Raises Undecided on a phone."""
        if self.facts.android is not None:
            raise Undecided("android")
        return ask_system(self.session, SystemSpec(fastrpc="auto"))

    @property
    def folder(self) -> str:
        """The folder of the selftest on the device."""
        return f"{self.facts.base_dir}/selftest-{self.run_id}"

    @cached_property
    def own(self) -> Facts:
        """The facts with the folder of the selftest as base, so that all files stay below it."""
        return replace(self.facts, base_dir=self.folder, store=False)

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the runtime: (2, 51, 0)."""
        return version_key(self.runtime.version if self.runtime else "0")

    def emulated(self, words: str = "") -> None:
        """Raise Undecided if there is no Hexagon. `words` is the device's output."""
        if self.facts.emulated:
            raise Undecided("emulated", words=words)

    def builder(self, bundle: Path, kind: str, run: RunSpec) -> ReleaseBuilder:
        """Return the release builder for a bundle with this runtime. Raises Undecided."""
        if self.runtime is None:
            raise Undecided("no-runtime")
        playbook = Playbook(
            Path("selftest.yaml"),
            f"selftest-{run.runner}",
            bundle,
            RuntimeSpec(self.runtime.build_id, wheel=False),
            run,
            bundle_kind=kind,
        )
        built = ReleaseBuilder(playbook, self.store, lambda _: None)
        try:
            target = built.target_for(self.session.host, self.facts)
        except InputError as error:
            raise Undecided("no-target", error.message) from error
        if target not in self.runtime.targets:
            raise Undecided("no-target", target)
        return built

    def v73(self) -> None:
        """Raise Undecided if fleet's tiny models cannot run."""
        if self.version < TINY_QAIRT:
            raise Undecided("old-runtime", ".".join(map(str, TINY_QAIRT)))
        arch = self.facts.soc.hexagon_arch
        if not self.facts.emulated and arch != _V73:
            raise Undecided(
                "other-chip", f"the device is {arch}, but the test models are for {_V73}"
            )

    def manifest(self, built: ReleaseBuilder) -> Manifest:
        """Return the release of a builder. Raises Undecided if the runtime lacks its program."""
        target = built.target_for(self.session.host, self.facts)
        parts = built.parts(target, self.facts.soc.hexagon_arch, built.python_of(self.facts))
        lacking = [name for name in parts.selection.missing if name.startswith("bin/")]
        if lacking:
            raise Undecided("no-program", lacking[0].rpartition("/")[2])
        return built.manifest(parts)

    def bring(self, manifest: Manifest) -> str:
        """Send and stage a release in the folder of the selftest; return its path there."""
        blobs = tuple(Blob(item) for item in manifest.blobs.values())
        carry_out(
            self.session,
            self.own,
            manifest,
            (SendBlobs(blobs), StageRelease(manifest)),
            self.run_id,
        )
        return release_dir(self.folder, manifest.name, manifest.id)

    def start(self, manifest: Manifest, start: Start, number: int) -> Ended:
        """Run a program of a release that was sent."""
        placed = place(start, manifest, self.folder, f"{self.run_id}-{number}")
        return execute(self.session, placed, lambda _: None, lambda _: None)

    def run(
        self, built: ReleaseBuilder, manifest: Manifest, number: int, run: RunSpec | None = None
    ) -> tuple[Outcome, str]:
        """Run the runner once, like `fleet run`; return its outcome and the device's output."""
        target = built.target_for(self.session.host, self.facts)
        wanted = run or built.playbook.run or RunSpec()
        tool = any(item.name.startswith("bin/") for item in manifest.files)
        kit = built.kit(wanted, has_tool=tool, target=target)
        start = built.runner.start(kit)
        ended = self.start(manifest, start, number)
        words = (ended.stdout + b"\n" + ended.stderr).decode("utf-8", "replace")
        return built.runner.read(start, kit, ended), words

    @cached_property
    def genie(self) -> tuple[ReleaseBuilder, Manifest, str]:
        """The release of the tiny dialog on the device, which most rungs need."""
        bundle = self.work / "tiny-genie"
        bundle.mkdir(exist_ok=True)
        older = self.version < (2, 51)
        for source in shipped("assets/tiny-genie").iterdir():
            instead = shipped("assets/tiny-genie-qairt2.47.0") / source.name
            chosen = instead if older and instead.is_file() else source
            if chosen.name != "SHA256SUMS":
                (bundle / source.name).write_bytes(chosen.read_bytes())
        run = RunSpec("genie", "What is fleet?", 64, timeout=RUN_SECONDS)
        built = self.builder(bundle, "genie", run)
        manifest = self.manifest(built)
        return built, manifest, self.bring(manifest)

    def open_session(self, context: bytes = b"", **changes: str) -> SessionWords:
        """Open a session with the release; `changes` are variables, "" removes one.

        Raises Undecided without Python.
        """
        argv, program, env, unset = self.session_parts("-" if context else "", **changes)
        command = Command(argv, env=env, unset=unset)
        stdin = [program, context]
        done = self.session.run(command, "session", stdin=stdin, seconds=SECONDS + GRACE)
        words = f"{done.text}\n{done.error_text}"
        report: dict[str, Any] | None = told_by(words)
        if report is None:
            return SessionWords([], f"the test program ended with status {done.status}", words)
        steps = [(str(name), int(code), str(text)) for name, code, text in report.get("steps", ())]
        late = "the test program did not end in time" if report.get("late") else ""
        return SessionWords(steps, str(report.get("load", "")) or late, words)

    def session_parts(
        self, *more: str, **changes: str
    ) -> tuple[tuple[str, ...], bytes, dict[str, str], tuple[str, ...]]:
        """Return argv, program, environment and unset variables for a session."""
        tools = self.facts.tools
        _, manifest, root = self.genie
        if tools.python3 is None or not tools.python3_ctypes:
            raise Undecided("no-python", "python3 with ctypes")
        argv, program = session_argv(tools.python3, f"{root}/lib/libQnnHtp.so", *more)
        env = {**manifest.environment(root), **changes}
        env["LD_LIBRARY_PATH"] += f":{self.facts.base_dir}/shim"
        gone = tuple(name for name, value in env.items() if not value)
        return argv, program, {k: v for k, v in env.items() if v}, ("DSP_LIBRARY_PATH", *gone)

    def clean(self) -> None:
        """Remove the folder of the selftest from the device."""
        command = Command(("rm", "-rf", self.folder))
        self.session.ask(command, "clean", mutates=True)


def extra_files(runtime: Runtime, wanted: dict[str, str]) -> tuple[FileRef, ...]:
    """Return files of a runtime by their path in it, with release names; () if one is missing."""
    by_path = {item.path: item for item in runtime.libraries}
    if not wanted.keys() <= by_path.keys():
        return ()
    return tuple(
        FileRef(
            runtime.root / path,
            name,
            by_path[path].size,
            by_path[path].sha256,
            executable=name.startswith("bin/"),
        )
        for path, name in wanted.items()
    )


def workplace() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder of this workstation for files to send."""
    return tempfile.TemporaryDirectory(prefix="fleet-selftest-")
