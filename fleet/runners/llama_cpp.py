"""Runner `llama.cpp`: llama-bench and llama-cli with the Hexagon backend. deployment.md 4.6.

It brings its own DSP libraries and needs no QAIRT. It falls back to the CPU in silence: a run
counts only when the log names the Hexagon.
"""

from __future__ import annotations

import re

from pydantic import Field

from fleet.model.errors import InputError
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.profiles.formats import llama_cpp
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Options, ending, named, needs_program, own_files, parsed, program


class LlamaOptions(Options):
    """`device` as --device takes it (HTP0, or HTP0,HTP1 for large models)."""

    model: str | None = None
    device: str = Field(default="HTP0", pattern=r"^[A-Za-z0-9,]{1,60}$")
    gpu_layers: int = Field(default=99, ge=0)
    prompt_tokens: int = Field(default=128, ge=0)
    repetitions: int = Field(default=1, ge=1)
    env: dict[str, str] = Field(default_factory=dict)
    extra: list[str] = Field(default_factory=list)


class LlamaCppRunner:
    """A .gguf model; libraries of CPU and DSP share one folder."""

    name = "llama.cpp"
    kinds = ("llama.cpp",)
    runtime: str | None = None
    layout = Layout(lib="lib", dsp="lib")

    def check(self, run: RunSpec) -> None:
        """Program and options."""
        options = parsed(LlamaOptions, run.options, self.name)
        needs_program(run, self.name, "../build-snapdragon/bin/llama-bench")
        for name in options.env:
            if not re.fullmatch(r"GGML_HEXAGON_[A-Z0-9_]+", name):
                raise InputError(
                    f"run.options.env: {name} is no variable of the Hexagon backend",
                    hint="they begin with GGML_HEXAGON_",
                )

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """The program and its libraries."""
        return own_files(kit.run, self.layout)

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """One token."""
        return self._start(kit, timeout, prompt_tokens=1, tokens=1, repetitions=1)

    def start(self, kit: Kit) -> Start:
        """llama-bench: prompt and generation apart; llama-cli: the prompt of the playbook."""
        options = parsed(LlamaOptions, kit.options, self.name)
        return self._start(
            kit,
            kit.run.timeout,
            prompt_tokens=options.prompt_tokens,
            tokens=kit.run.max_tokens,
            repetitions=options.repetitions,
        )

    def _start(
        self, kit: Kit, timeout: float, *, prompt_tokens: int, tokens: int, repetitions: int
    ) -> Start:
        options = parsed(LlamaOptions, kit.options, self.name)
        model = named(kit.bundle, options.model, ("*.gguf",), "model", "model")
        argv = [program(kit.run, self.layout), "-m", model, "--device", options.device]
        argv += ["-ngl", str(options.gpu_layers), "-n", str(tokens)]
        if _is_bench(kit):
            argv += ["-p", str(prompt_tokens), "-r", str(repetitions), "-o", "json"]
        else:
            argv += ["-f", "{work}/prompt.txt", "-no-cnv"]
        prompt = kit.run.prompt.encode()
        return Start((*argv, *options.extra), "bundle", (), timeout, prompt, env=dict(options.env))

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Rates; without the line of the Hexagon backend it ran on the CPU."""
        problems = ending(start, ended)
        said = ended.stdout.decode("utf-8", "replace")
        whole = ended.stderr.decode("utf-8", "replace") + "\n" + said
        if not llama_cpp.names_hexagon(whole) and not problems:
            problems.append("cpu-fallback: the log names no Hexagon (`Hexagon Arch version`)")
        found = llama_cpp.bench(said) if _is_bench(kit) else llama_cpp.timings(whole)
        if not found and not problems:
            problems.append("unreadable: no times in the output")
        text = "" if _is_bench(kit) else said.strip()
        raw = {"bench.json": ended.stdout} if _is_bench(kit) else {}
        return Outcome(Metrics.of(found), text, None, tuple(problems), raw)


def _is_bench(kit: Kit) -> bool:
    return kit.run.program is not None and "bench" in kit.run.program.name
