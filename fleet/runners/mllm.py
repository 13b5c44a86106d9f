"""The runner `mllm`: the QNN ahead-of-time runner of mllm (mllm-qwen3-aot-runner and similar).

It was never run with the real program, because the public QNN headers do not compile it; its
records say so. Facts from examples/qwen3_qnn_aot/aot_run.cpp of UbiquitousLearning/mllm (b9c3070):
The prompt is one line of standard input (std::getline). The context always has 1024 tokens. Tokens
go to standard output as they come, and no time is printed.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from fleet.model.bundle import KINDS
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats import mllm
from fleet.runners.base import Ended, Kit, Outcome, Start
from fleet.runners.options import Options, OwnProgram, ending, named, parsed, program

CONTEXT_TOKENS = 1024  # RunnerConfig.context_len in aot_run.cpp, no option
_MARKER = mllm.MARKER.encode()
_HEALTH_PROMPT = b"hi\n"
UNTRIED = "untested: nobody has tested fleet with the real mllm program yet"


class MllmOptions(Options, frozen=True):
    """The options. `ar_len` must be the value that the context binary was compiled with."""

    ar_len: Annotated[int, Meta(ge=1, le=CONTEXT_TOKENS)] = 128
    model: str | None = None
    tokenizer: str | None = None
    config: str | None = None
    extra: list[str] = field(default_factory=list)


class MllmRunner(OwnProgram):
    """A runner of a context binary, tokenizer and config, with all files in one folder."""

    name = "mllm"
    kinds = ("mllm",)
    options = MllmOptions
    default_for = ("mllm",)
    needs_prompt = True
    needs_program = "../build-android-arm64-v8a-qnn/bin/mllm-qwen3-aot-runner"
    formats = ("mllm",)
    runtime: str | None = "mllm"

    def check(self, run: RunSpec) -> None:
        """Check the program, the options, and that the runner can read the prompt."""
        super().check(run)
        if "\n" in run.prompt.strip("\n"):
            raise InputError(
                "the prompt has several lines, but mllm reads only one line",
                hint="write `prompt:` in the playbook as one line",
            )

    def opens(self, kit: Kit) -> tuple[str, ...]:
        """Return the op packages that mllm's QNN backend registers by fixed names.

        See docs/op-packages.md. Without a DSP there is no second package.
        """
        roles = ("CPU", "HTP") if kit.dsp else ("CPU",)
        return tuple(f"libQnnLLaMAPackage_{role}.so" for role in roles)

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start with a very short prompt: backend, device, context and op packages."""
        return self._start(kit, _HEALTH_PROMPT, timeout)

    def start(self, kit: Kit) -> Start:
        """Return the start that passes one prompt by standard input."""
        return self._start(kit, kit.run.prompt.strip("\n").encode() + b"\n", kit.run.timeout)

    def _start(self, kit: Kit, prompt: bytes, timeout: float) -> Start:
        options, bundle = parsed(MllmOptions, kit.options, self.name), kit.bundle
        model = named(bundle, options.model, ("*.bin", "*.mllm"), "model", "model")
        given = {"tokenizer": options.tokenizer, "config": options.config}
        tokenizer, config = (named(bundle, given[what], (pattern,), what, what)
                             for what, pattern in KINDS[self.name].needs)  # fmt: skip
        argv = [program(kit.run, self.layout), "-m", model, "-t", tokenizer, "-c", config]
        argv += ["--ar_len", str(options.ar_len), *options.extra]
        return Start(tuple(argv), "", (), timeout, prompt, feeds_prompt=True, marks=(UNTRIED,))

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the text, the rates if a fork prints them, and the time of the whole run."""
        problems = ending(start, ended)
        _, marker, answer = ended.stdout.partition(_MARKER)
        text = (answer if marker else ended.stdout).decode("utf-8", "replace").strip()
        if not problems and not text:
            problems.append("cut: the program printed no token")
        whole = (ended.stdout + b"\n" + ended.stderr).decode("utf-8", "replace")
        numbers = mllm.rates(whole)
        numbers["wall_ms"] = Measure(
            round(ended.seconds * 1000, 1), "ms, of this workstation's clock"
        )
        return Outcome(Metrics.of(numbers), text, None, tuple(problems))
