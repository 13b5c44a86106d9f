"""The runner `executorch`: qnn_executor_runner and qnn_llama_runner (docs/sources/deployment.md
5).
"""

from __future__ import annotations

import re
from array import array
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from fleet.config.values import Pattern
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import number
from fleet.profiles.formats.executorch import inferences, observed, speed_file
from fleet.runners.base import Ended, Kit, Outcome, Start
from fleet.runners.options import Options, OwnProgram, ending, named, parsed, program

_MAKE_FOLDER = 'mkdir -p "$1" && shift && exec "$@"'
_ITERATION = re.compile(r"(?<= )--?iteration[ =]([0-9]{1,9})(?= |$)")
SPEED, INPUT_LIST = "inference_speed.txt", "input_list*.txt"
NO_INPUTS = "default-inputs: the bundle has no list of inputs"


Version = Annotated[
    str, Pattern(r"[A-Za-z0-9._-]{1,40}", "version of a decoder", "write it like qwen3 or llama3")
]


class ExecutorchOptions(Options, frozen=True):
    """The options of both programs.

    `input_list` and `profile_level` are for qnn_executor_runner, `tokenizer` and the rest for
    qnn_llama_runner.

    `profile_level` is 0 for off, 1 for basic, 2 for cycles of each operation
    (QnnExecuTorchProfileLevel). None keeps the level that the .pte was compiled with. A profiled
    inference takes longer.

    `reference` maps an output of qnn_executor_runner (`output_0_0.raw`) to a file of the bundle,
    both of float32. `tolerance` is the largest difference from it that is accepted.
    """

    model: str | None = None
    input_list: str | None = None
    tokenizer: str | None = None
    decoder_model_version: Version | None = None
    eval_mode: Annotated[int, Meta(ge=0, le=9)] | None = None
    temperature: float = 0.0
    seq_len: Annotated[int, Meta(ge=1)] = 128
    iterations: Annotated[int, Meta(ge=1)] = 1
    shared_buffer: bool = False
    profile_level: Annotated[int, Meta(ge=0, le=2)] | None = None
    reference: dict[str, str] = field(default_factory=dict)
    tolerance: Annotated[float, Meta(ge=0)] | None = None
    extra: list[str] = field(default_factory=list)


class ExecutorchRunner(OwnProgram):
    """A .pte program; all files in one folder, as ExecuTorch's own scripts push them."""

    name = "executorch"
    kinds = ("executorch",)
    options = ExecutorchOptions
    default_for = ("executorch",)
    needs_program = "../build-android/.../qnn_executor_runner"
    formats = ("executorch",)
    runtime: str | None = "executorch"

    def check(self, run: RunSpec) -> None:
        """Check the program and the options."""
        super().check(run)
        options = parsed(ExecutorchOptions, run.options, self.name)
        llama = run.program is not None and "llama" in run.program.name
        if llama and options.profile_level is not None:
            raise InputError(
                "the program qnn_llama_runner does not support `profile_level` under `run: "
                "options:`",
                hint="remove `profile_level:` from the playbook, or set `run: program:` to "
                "qnn_executor_runner",
            )

    def example(self, bundle: Bundle) -> str:
        """Return the path of a program; a language model has its own one."""
        speaks = any(item.needs for item in bundle.contents)
        return self.needs_program.replace("executor_", "llama_") if speaks else self.needs_program

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start of one run with 32 tokens and one iteration."""
        return self._start(kit, timeout, seq_len=32, iterations=1)

    def start(self, kit: Kit) -> Start:
        """Return the start of the requested number of iterations, in one process."""
        options = parsed(ExecutorchOptions, kit.options, self.name)
        return self._start(
            kit,
            kit.run.timeout,
            seq_len=options.seq_len,
            iterations=options.iterations,
            profile=options.profile_level,
        )

    def _start(
        self, kit: Kit, timeout: float, *, seq_len: int, iterations: int, profile: int | None = None
    ) -> Start:
        options = parsed(ExecutorchOptions, kit.options, self.name)
        model = named(kit.bundle, options.model, ("*.pte",), "program", "model")
        argv = ["sh", "-c", _MAKE_FOLDER, "fleet", "{work}/outputs", program(kit.run, self.layout)]
        argv += ["--model_path", model, "--performance_output_path", "{work}/" + SPEED]
        argv += ["--shared_buffer"] if options.shared_buffer else []
        if _is_llama(kit):
            tokenizer = named(
                kit.bundle, options.tokenizer, ("*tokenizer*",), "tokenizer", "tokenizer"
            )
            argv += ["--tokenizer_path", tokenizer, "--output_path", "{work}/outputs.txt"]
            argv += ["--prompt", kit.run.prompt, "--seq_len", str(seq_len)]
            argv += ["--temperature", f"{options.temperature:g}", "--num_iters", str(iterations)]
            version, mode = options.decoder_model_version, options.eval_mode
            argv += ["--decoder_model_version", version] if version else []
            argv += ["--eval_mode", str(mode)] if mode is not None else []
        else:
            for name in options.reference.values():
                named(kit.bundle, name, (), "reference", "reference")
            argv += self._inputs(kit, options)
            argv += ["--output_folder_path", "{work}/outputs"]
            argv += ["--etdump_path", "{work}/etdump.etdp", "--iteration", str(iterations)]
            argv += ["--profile_level", str(profile)] if profile is not None else []
        collect = (
            "outputs.txt",
            SPEED,
            "etdump.etdp",
            *(f"outputs/{n}" for n in options.reference),
        )
        prompt, given = kit.run.prompt.encode(), _is_llama(kit) or "--input_list_path" in argv
        marks = (*(("profiled",) if profile else ()), *(() if given else (NO_INPUTS,)))
        return Start((*argv, *options.extra), "", collect, timeout, prompt, marks=marks)

    def _inputs(self, kit: Kit, options: ExecutorchOptions) -> list[str]:
        """Return the option for the list of inputs.

        Without a list, qnn_executor_runner fills the inputs itself and executes once
        (qnn_executor_runner.cpp of pytorch/executorch).
        """
        there = any(fnmatchcase(item.name, INPUT_LIST) for item in kit.bundle.files)
        if not (options.input_list or options.reference or there):
            return []
        name = named(kit.bundle, options.input_list, (INPUT_LIST,), "input list", "input_list")
        return ["--input_list_path", name]

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the times of PyTorchObserver and of inferences, and the unchanged etdump.

        The content of the speed file depends on the program. qnn_llama_runner writes tokens per
        second over the whole inference, including the pass of the prompt (runner.cpp of
        pytorch/executorch, cff6f4d), so it is not a rate of decoding. On Android the log goes to
        logcat, so the file is the only output of qnn_executor_runner.
        """
        problems = ending(start, ended)
        output = (ended.stdout + b"\n" + ended.stderr).decode("utf-8", "replace")
        numbers, written = observed(output), ended.files.get(SPEED, b"").decode("utf-8", "replace")
        count, source = _iterations(start.argv), dict[str, Measure]()
        speed = number(written.strip())
        if speed is not None and _is_llama(kit):
            numbers["inference_tps"] = source[SPEED] = Measure(speed, "tok/s")
        elif speed is not None:
            source[SPEED] = Measure(speed, f"ms of {count} iterations")
        if not _is_llama(kit):
            numbers |= inferences(output) or speed_file(written, count)
        if not problems and not numbers and "etdump.etdp" not in ended.files:
            problems.append("cut: the program ended before it wrote times or an etdump profile")
        if not problems:
            options = parsed(ExecutorchOptions, kit.options, self.name)
            distances, wrong = _compared(kit, options, ended)
            numbers |= distances
            problems += wrong
        text = ended.files.get("outputs.txt", b"").decode("utf-8", "replace").strip()
        metrics = replace(Metrics.of(numbers), source=source)
        return Outcome(metrics, text, None, tuple(problems), dict(ended.files))


def _compared(
    kit: Kit, options: ExecutorchOptions, ended: Ended
) -> tuple[dict[str, Measure], list[str]]:
    """Return the distance of each output from its reference, and the problems.

    A problem is an output that is too far away, or that cannot be compared.
    """
    measured, wrong = dict[str, Measure](), list[str]()
    files = {item.name: item.source for item in kit.bundle.files}
    for output, name in options.reference.items():
        have, want = _floats(ended.files.get(f"outputs/{output}", b"")), _floats(_read(files[name]))
        if not have or len(have) != len(want):
            wrong.append(
                f"wrong: {output} has {len(have)} numbers, but its reference {name} has {len(want)}"
            )
            continue
        far = max(abs(given - wanted) for given, wanted in zip(have, want, strict=True))
        measured[f"{output.removesuffix('.raw')}_max_abs"] = Measure(far)
        if options.tolerance is not None and not far <= options.tolerance:
            wrong.append(
                f"wrong: {output} differs by {far:g} from its reference {name}, but the "
                f"tolerance is {options.tolerance:g}"
            )
    return measured, wrong


def _floats(data: bytes) -> array[float]:
    return array("f", data[: len(data) // 4 * 4])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _iterations(argv: tuple[str, ...]) -> int:
    """Return the value of `--iteration`.

    The last one applies; it may come from `extra` of the playbook.
    """
    matches = _ITERATION.findall(" ".join(argv))
    return max(int(matches[-1]), 1) if matches else 1


def _is_llama(kit: Kit) -> bool:
    return kit.run.program is not None and "llama" in kit.run.program.name
