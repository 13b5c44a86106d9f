"""Runner `qnn-net-run`: a context binary or DLC with inputs from files.

docs/sources/deployment.md 5.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from fleet.bundles.op_packages import net_run_option
from fleet.model.errors import InputError, ProfileError
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats import qnn
from fleet.profiles.formats.base import Profile
from fleet.runners.base import Defaults, Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Options, ending, named, parsed

TOOL = "qnn-net-run"
VIEWER = "bin/x86_64-linux-clang/qnn-profile-viewer"
JSON_READER = "libQnnJsonProfilingReader.so"
JSON, CSV = "profile.json", "profile.csv"
VIEWER_SECONDS = 120.0
_DONE = re.compile(rb"inferences_completed\s*:\s*([0-9]{1,9})")


class NetRunOptions(Options):
    """`inputs`: one row an inference; a row is a list of files of the bundle, each
    `file` or `tensor:=file`.
    """

    model: str | None = None
    inputs: list[list[str]] = Field(min_length=1)
    profiling: Literal["off", "basic", "detailed", "optrace"] = "basic"
    perf_profile: str = Field(default="burst", pattern=r"^[a-z_]{1,40}$")
    num_inferences: int | None = Field(default=None, ge=1)
    native_inputs: bool = False
    native_outputs: bool = False
    config_file: str | None = None
    keep_results: bool = False
    extra: list[str] = Field(default_factory=list)


class NetRunRunner(Defaults):
    """The SDK's own runner of graphs."""

    name = TOOL
    kinds = ("qnn",)
    runtime: str | None = TOOL
    layout = Layout()

    def check(self, run: RunSpec) -> None:
        """Options; no blank in a name, which would split a line of the input list."""
        options = parsed(NetRunOptions, run.options, self.name)
        for name in (name for row in options.inputs for name in row):
            if re.search(r"\s", name) or not name.rpartition(":=")[2]:
                raise InputError(
                    f"run.options.inputs: '{name}' cannot stand in an input list",
                    hint="use file names without blanks",
                )

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """None beside the runtime and the bundle."""
        return ()

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """The same graph with the same inputs, once, without a profile."""
        return self._start(kit, timeout, ["--num_inferences", "1"], profiled=False)

    def start(self, kit: Kit) -> Start:
        """All rows of inputs."""
        number = parsed(NetRunOptions, kit.options, self.name).num_inferences
        return self._start(
            kit, kit.run.timeout, ["--num_inferences", str(number)] if number else [], profiled=True
        )

    def _start(self, kit: Kit, timeout: float, more: list[str], *, profiled: bool) -> Start:
        options = parsed(NetRunOptions, kit.options, self.name)
        model = named(kit.bundle, options.model, ("*.bin", "*.dlc"), "model", "model")
        for name in (name for row in options.inputs for name in row):
            named(kit.bundle, name.rpartition(":=")[2], (), "input", "inputs")
        dlc = model.endswith(".dlc")
        argv = [
            "{release}/bin/" + TOOL,
            *(["--dlc_path"] if dlc else ["--retrieve_context"]),
            model,
        ]
        argv += ["--model", "{release}/lib/libQnnModelDlc.so"] if dlc else []
        argv += ["--backend", "{release}/lib/libQnnHtp.so"]
        argv += ["--input_list", "{work}/config.json", "--output_dir", "{work}/output"]
        if profiled and options.profiling != "off":
            level = "detailed" if options.profiling == "optrace" else options.profiling
            argv += ["--profiling_level", level]
            argv += ["--profiling_option", "optrace"] if options.profiling == "optrace" else []
        argv += ["--perf_profile", options.perf_profile, *more]
        argv += ["--use_native_input_files"] if options.native_inputs else []
        argv += ["--use_native_output_files"] if options.native_outputs else []
        if options.config_file:
            argv += ["--config_file", named(kit.bundle, options.config_file, (), "", "config_file")]
        if kit.bundle.op_packages:
            text = net_run_option(kit.bundle.op_packages, dsp=kit.dsp, lib="{release}/lib")
            argv += ["--op_packages", text]
        collect = ["output/*.log", "output/execution_metadata.yaml"]
        collect += ["output/Result_*/*"] if options.keep_results else []
        listed = "".join(" ".join(row) + "\n" for row in options.inputs)
        return Start((*argv, *options.extra), "bundle", tuple(collect), timeout, config=listed)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Inferences that were done, and the profile where the SDK on this host can read it."""
        problems = ending(start, ended)
        metadata = ended.files.get("output/execution_metadata.yaml", b"")
        match = _DONE.search(metadata)
        found = {"inferences": Measure(float(match[1]))} if match else {}
        if not problems and metadata and match and int(match[1]) == 0:
            problems.append("cut: no inference was completed")
        raw = dict(ended.files)
        log = next((data for name, data in raw.items() if "profiling-data" in name), None)
        text, ops, source = "", tuple[Op, ...](), dict[str, Measure]()
        if log is not None:
            viewed, text = _viewed(kit.runtime_root, log)
            raw |= viewed
            if viewed:
                seen, text = _merged(viewed)
                if seen is not None:
                    found |= seen.metrics.others
                    ops, source = seen.ops, dict(seen.metrics.source)
        metrics = Metrics(others=found, source=source)
        return Outcome(metrics, text, None, tuple(problems), raw, ops)


def _merged(viewed: Mapping[str, bytes]) -> tuple[Profile | None, str]:
    """The operations of the JSON, and from the table what qnn-net-run itself took. Where one
    cannot be read, the other alone; and why.
    """
    said = {name: data.decode("utf-8", "replace") for name, data in viewed.items()}
    try:
        return qnn.merged(said.get(JSON), said.get(CSV)), ""
    except ProfileError:
        whole, wrong = list[Profile](), list[str]()
    for name, text in said.items():
        try:
            whole.append(qnn.merged(text, None) if name == JSON else qnn.merged(None, text))
        except ProfileError as error:
            wrong.append(f"{name}: {error.message}")
    return (whole[0] if whole else None), "; ".join(wrong)


def _viewed(root: Path | None, log: bytes) -> tuple[dict[str, bytes], str]:
    """What the viewer makes of a binary profile log, or why that is nothing.

    Its JSON has the operations; only its table (CSV) has the times of qnn-net-run itself.
    """
    viewer = root / VIEWER if root is not None else None
    if viewer is None or not viewer.is_file():
        return {}, f"the profile log is kept as it is: no {VIEWER} in the runtime on this host"
    library = viewer.parents[2] / "lib" / viewer.parent.name
    reader = library / JSON_READER
    wanted = {JSON: ["--reader", str(reader)]} if reader.is_file() else {}
    found: dict[str, bytes] = {}
    why = ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "profile.log")
        source.write_bytes(log)
        for name, more in {**wanted, CSV: []}.items():
            target = Path(folder, name)
            said = _view([str(viewer), *more], source, target, library)
            if target.is_file() and target.stat().st_size:
                found[name] = target.read_bytes()
            else:
                why = said
    return found, "" if found else why


def _view(argv: list[str], source: Path, target: Path, library: Path) -> str:
    """Start the viewer with the user's own environment: the SDK's libraries are built on libc++,
    which no SDK brings. Returns why `target` was not written.
    """
    paths = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    try:
        done = subprocess.run(
            [*argv, "--input_log", str(source), "--output", str(target)],
            capture_output=True,
            check=False,
            timeout=VIEWER_SECONDS,
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(paths)},
        )
    except PermissionError:  # an older fleet stored programs of a zip so
        return f"qnn-profile-viewer cannot be started; chmod +x {shlex.quote(argv[0])}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"qnn-profile-viewer failed: {error}"
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    cure = "; sudo apt install libc++1 libc++abi1" if any("libc++" in one for one in words) else ""
    return f"qnn-profile-viewer wrote nothing: {' | '.join(words[-2:])}{cure}"
