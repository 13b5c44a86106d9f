"""The runner `qnn-net-run`: a context binary, DLC or model library with inputs from files.

See docs/sources/deployment.md 5. HTP's performance mode is set in the configuration of the backend
extensions. The SDK calls `--perf_profile` deprecated for HTP (docs/QNN/general/htp/htp_backend.html
of 2.25), where it has no effect.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from fleet.bundles.jsonfile import read_text
from fleet.bundles.op_packages import net_run_option
from fleet.bundles.paths import name_in
from fleet.config.values import Pattern
from fleet.device.texts import path_of
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError, ProfileError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats import qnn
from fleet.profiles.formats.base import Profile
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Defaults, Options, ending, has_program, named, own_files, parsed

# Profile logs of qnn-net-run, converted by qnn-profile-viewer on the device, else here.

VIEWER = "bin/x86_64-linux-clang/qnn-profile-viewer"
JSON_READER = "libQnnJsonProfilingReader.so"
_SAMPLE = re.compile(r"\.(raw|bin|npy)$", re.IGNORECASE)
_LIST_BYTES = 1 << 20
JSON, CSV, WORDS = "profile.json", "profile.csv", "viewer.txt"
VIEWER_SECONDS = 120.0


def viewed(root: Path | None, files: Mapping[str, bytes]) -> tuple[dict[str, bytes], str]:
    """Return the files that a viewer makes from the log among `files`, or why there are none.

    The viewer on the device is from the SDK that wrote the log. If it wrote no file, the viewer of
    `root`, the runtime on this host, reads the log. Its JSON has the operations; only its table
    (CSV) has the times of qnn-net-run itself.
    """
    there = {name: files[name] for name in (JSON, CSV) if files.get(name)}
    log = next((data for name, data in files.items() if "profiling-data" in name), None)
    if there or log is None:
        return there, ""
    here, why = _viewed_here(root, log)
    words = files.get(WORDS, b"").decode("utf-8", "replace").strip().splitlines()
    return here, (
        f"{why}; qnn-profile-viewer also failed on the device: {' | '.join(words[-2:])}"
    ) if why and words else why


def merged(files: Mapping[str, bytes]) -> tuple[Profile | None, str]:
    """Return the operations of the JSON with the times of qnn-net-run from the table.

    If a file cannot be read, the other one is used alone; the text explains why.
    """
    texts = {name: data.decode("utf-8", "replace") for name, data in files.items()}
    try:
        return qnn.merged(texts.get(JSON), texts.get(CSV)), ""
    except ProfileError:
        whole, wrong = list[Profile](), list[str]()
    for name, text in texts.items():
        try:
            whole.append(qnn.merged(text, None) if name == JSON else qnn.merged(None, text))
        except ProfileError as error:
            wrong.append(f"{name}: {error.message}")
    return (whole[0] if whole else None), "; ".join(wrong)


def _viewed_here(root: Path | None, log: bytes) -> tuple[dict[str, bytes], str]:
    viewer = root / VIEWER if root is not None else None
    if viewer is None or not viewer.is_file():
        return {}, (f"fleet could not convert the profile log, because the runtime has no {VIEWER}")
    library = viewer.parents[2] / "lib" / viewer.parent.name
    reader = library / JSON_READER
    wanted = {JSON: ["--reader", str(reader)]} if reader.is_file() else {}
    files: dict[str, bytes] = {}
    why = ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "profile.log")
        source.write_bytes(log)
        for name, more in {**wanted, CSV: []}.items():
            target = Path(folder, name)
            failure = _view([str(viewer), *more], source, target, library)
            if target.is_file() and target.stat().st_size:
                files[name] = target.read_bytes()
            else:
                why = failure
    return files, "" if files else why


def _view(argv: list[str], source: Path, target: Path, library: Path) -> str:
    """Run the viewer with the user's own environment. Return why `target` was not written.

    The SDK's libraries are built on libc++, which no SDK includes.
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
    except PermissionError:  # an older fleet stored programs of a zip without this permission
        return f"qnn-profile-viewer cannot start; chmod +x {shlex.quote(argv[0])}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"qnn-profile-viewer failed: {error}"
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    cure = (
        "; sudo apt install libc++1 libc++abi1" if any("libc++" in line for line in words) else ""
    )
    return f"qnn-profile-viewer did not write a file: {' | '.join(words[-2:])}{cure}"


TOOL = "qnn-net-run"
MODELS = ("*.bin", "*.dlc", "lib*.so")
SCRIPT = "run/net_run.sh"
PERFORMANCE = "performance.json"
_DONE = re.compile(rb"inferences_completed\s*:\s*([0-9]{1,9})")
# Messages of libQnnHtpNetRunExtensions 2.25; the first two at every log level, the last at `info`.
_REFUSED = re.compile(r"Invalid perf_profile .*|Unknown Key: \S*perf_profile.*")
_SET = re.compile(r"Perf Infra set power config return: \[(-?[0-9]{1,10})\]")


PerfMode = Annotated[
    str, Pattern(r"[a-z_]{1,40}", "performance mode", "write it as the HTP names it, like burst")
]


class NetRunOptions(Options, frozen=True, kw_only=True):
    """The options. `inputs` has a row for each inference.

    A row is a list of files of the bundle, each `file` or `tensor:=file`. `inputs` may also be the
    name of a list file of the bundle, in the form of the SDK's scripts; the default is the only
    input_list*.txt. `perf_profile` is not allowed together with a `config_file`.
    """

    model: str | None = None
    inputs: Annotated[list[list[str]], Meta(min_length=1)] | str | None = None
    profiling: Literal["off", "client", "basic", "detailed", "optrace"] = "basic"
    perf_profile: PerfMode | None = None
    num_inferences: Annotated[int, Meta(ge=1)] | None = None
    native_inputs: bool = False
    native_outputs: bool = False
    config_file: str | None = None
    keep_results: bool = False
    extra: list[str] = field(default_factory=list)

    @property
    def mode(self) -> str | None:
        """HTP's requested performance mode; None if the user's configuration sets it."""
        return None if self.config_file else self.perf_profile or "burst"


class NetRunRunner(Defaults):
    """The SDK's own runner of graphs."""

    name = TOOL
    kinds = ("qnn",)
    options = NetRunOptions
    default_for = ("qnn",)
    formats = ("qnn",)
    runtime: str | None = TOOL
    layout = Layout()

    def check(self, run: RunSpec) -> None:
        """Check the options; a blank in a name would split a line of the input list."""
        options = parsed(NetRunOptions, run.options, self.name)
        has_program(run, self.name, "the program of the runtime", "`program:`")
        rows = options.inputs if isinstance(options.inputs, list) else []
        for name in (name for row in rows for name in row):
            if re.search(r"\s", name) or not name.rpartition(":=")[2]:
                raise InputError(
                    f"`inputs` under `run: options:` contains the file name '{name}'; a file "
                    "name must not be empty or contain spaces",
                    hint="rename the file in the bundle and in the playbook",
                )
        if options.config_file and options.perf_profile:
            raise InputError(
                "`run: options:` of the playbook has both perf_profile and config_file",
                hint="remove `perf_profile:` from the playbook, and set it in the backend "
                "section of the file of `config_file:`",
            )

    def features(self, bundle: Bundle, run: RunSpec) -> tuple[str, ...]:
        """Return the features that compose a graph on the device, if it is not compiled."""
        options = parsed(NetRunOptions, run.options, self.name) if run.options else None
        model = named(bundle, options.model if options else None, MODELS, "model", "model")
        return ("dlc",) * model.endswith(".dlc") + ("model-library",) * model.endswith(".so")

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the script that starts program and viewer, and the user's libraries."""
        script = file_ref(path_of("net_run.sh"), SCRIPT, executable=True)
        return (script, *own_files(kit.run, self.layout))

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start of the same graph with the same inputs, once, without a profile."""
        return self._start(kit, timeout, ["--num_inferences", "1"], profiled=False)

    def start(self, kit: Kit) -> Start:
        """Return the start of all rows of inputs."""
        number = parsed(NetRunOptions, kit.options, self.name).num_inferences
        return self._start(
            kit, kit.run.timeout, ["--num_inferences", str(number)] if number else [], profiled=True
        )

    def _start(self, kit: Kit, timeout: float, more: list[str], *, profiled: bool) -> Start:
        options = parsed(NetRunOptions, kit.options, self.name)
        argv = ["sh", "{release}/" + SCRIPT, "{work}", _configuration(options), "{release}/lib"]
        argv += ["{release}/bin/" + TOOL, *_model(kit, options)]
        argv += ["--backend", "{release}/lib/libQnnHtp.so"]
        argv += ["--input_list", "{work}/config.json", "--output_dir", "{work}/output"]
        if profiled and options.profiling != "off":
            level = "detailed" if options.profiling == "optrace" else options.profiling
            argv += ["--profiling_level", level]
            argv += ["--profiling_option", "optrace"] if options.profiling == "optrace" else []
        argv += more if options.keep_results else [*more, "--keep_num_outputs", "0"]
        argv += ["--use_native_input_files"] if options.native_inputs else []
        argv += ["--use_native_output_files"] if options.native_outputs else []
        if options.config_file:
            argv += ["--config_file", named(kit.bundle, options.config_file, (), "", "config_file")]
        if kit.bundle.op_packages:
            text = net_run_option(kit.bundle.op_packages, dsp=kit.dsp, lib="{release}/lib")
            argv += ["--op_packages", text]
        collect = ["output/*.log", "output/execution_metadata.yaml", JSON, CSV, WORDS]
        if options.keep_results:  # the scale and offset of a native output are next to the folder
            collect += ["output/Result_*/*", "output/*.raw.json"]
        listed = _input_list(kit, options.inputs)
        return Start((*argv, *options.extra), "bundle", tuple(collect), timeout, config=listed)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the inferences that were done, the profile, and the performance mode's result."""
        problems = ending(start, ended)
        metadata = ended.files.get("output/execution_metadata.yaml", b"")
        match = _DONE.search(metadata)
        numbers = {"inferences": Measure(float(match[1]))} if match else {}
        if not problems and metadata and match and int(match[1]) == 0:
            problems.append("cut: qnn-net-run ended before it finished its first inference")
        mode = parsed(NetRunOptions, kit.options, self.name).mode
        files, text = viewed(kit.runtime_root, ended.files)
        raw = {**ended.files, **files, **_performance(mode, ended, problems)}
        ops, source = tuple[Op, ...](), dict[str, Measure]()
        if files:
            profile, text = merged(files)
            if profile is not None:
                numbers |= profile.metrics.others
                ops, source = profile.ops, dict(profile.metrics.source)
        metrics = Metrics(others=numbers, source=source)
        return Outcome(metrics, text, None, tuple(problems), raw, ops)


def _input_list(kit: Kit, inputs: list[list[str]] | str | None) -> str:
    """Return the text for --input_list. Raises InputError for a file missing from the bundle."""
    if isinstance(inputs, list):
        for name in (name for row in inputs for name in row):
            named(kit.bundle, name.rpartition(":=")[2], (), "input", "inputs")
        return "".join(" ".join(row) + "\n" for row in inputs)
    others = tuple(item.name for item in kit.bundle.files if _is_input_list(item))
    name = named(kit.bundle, inputs, ("input_list*.txt", *others), "list of inputs", "inputs")
    source = next(item.source for item in kit.bundle.files if item.name == name)
    lines = []
    for line in read_text(source).splitlines():
        words = line.split()
        if words and not line.startswith(("#", "%")):  # names of outputs
            words = [_listed(kit, name, word) for word in words]
        lines.append(" ".join(words))
    return "".join(line + "\n" for line in lines if line)


def _is_input_list(file: FileRef) -> bool:
    """Return whether a .txt names files of samples in its first row; labels and notes do not."""
    if not file.name.endswith(".txt") or file.size > _LIST_BYTES:
        return False
    rows = (line.split() for line in read_text(file.source).splitlines()
            if line.strip() and not line.startswith(("#", "%")))  # fmt: skip
    return all(_SAMPLE.search(word) for word in next(rows, ["none"]))


def _listed(kit: Kit, listed: str, word: str) -> str:
    """Return a word of a line with the name of its file in the bundle.

    The path in the line may be that of another folder or system. Raises InputError.
    """
    tensor, sign, path = word.rpartition(":=")
    sent = {item.name for item in kit.bundle.files}
    plain = path.removeprefix("./")
    near = "/".join(filter(None, [listed.rpartition("/")[0], plain]))
    match = next((name for name in (plain, near) if name in sent), None)
    match = match or name_in(kit.bundle.root, path)
    if match is None or match not in sent:
        raise InputError(
            f"{listed} names the input {path}, but the bundle does not contain this file",
            hint=f"copy {path} into {kit.bundle.root}, or correct the line in {listed}",
        )
    return f"{tensor}{sign}{match}"


def _configuration(options: NetRunOptions) -> str:
    """Return the configuration for libQnnHtpNetRunExtensions; "" if the user's applies."""
    if options.mode is None:
        return ""
    return json.dumps({"devices": [{"cores": [{"perf_profile": options.mode}]}]})


def _model(kit: Kit, options: NetRunOptions) -> list[str]:
    model = named(kit.bundle, options.model, MODELS, "model", "model")
    if model.endswith(".so"):
        return ["--model", f"./{model}"]
    if model.endswith(".dlc"):
        return ["--dlc_path", model, "--model", "{release}/lib/libQnnModelDlc.so"]
    return ["--retrieve_context", model]


def _performance(mode: str | None, ended: Ended, problems: list[str]) -> dict[str, bytes]:
    """Return the requested performance mode, and whether the backend accepted it.

    The result is null if the backend did not say, which it does from `--log_level info` on. A mode
    that was refused is a problem.
    """
    if mode is None:
        return {}
    output = (ended.stdout + b"\n" + ended.stderr).decode("utf-8", "replace")
    refused = [line.strip() for line in _REFUSED.findall(output)]
    codes = [int(code) for code in _SET.findall(output)]
    accepted = False if refused or any(codes) else True if codes else None
    if accepted is False and not problems:
        words = refused[0] if refused else "the QNN backend could not set its power configuration"
        problems.append(f"failed: the performance mode {mode} could not be set: {words}")
    data = {"perf_profile": mode, "set_by": "backend extensions", "accepted": accepted}
    return {PERFORMANCE: json.dumps({**data, "said": refused, "codes": codes}).encode()}
