"""Runner `llama.cpp`: llama-bench and llama-completion with the Hexagon backend.

docs/sources/deployment.md 5. It brings its own DSP libraries and needs no QAIRT. It falls back to
the CPU in silence: a run counts only where llama.cpp says itself that it was on the NPU.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, field

from fleet.config.values import Pattern
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.profiles.formats import llama_cpp
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Options, OwnProgram, ending, named, needs_program, parsed, program

LOG = "llama.log"
_HEALTH_PROMPT = "hi"
_MOST = 5
_AGAIN = "[fleet: llama.cpp lost the end of its output; it is run again]"
# Its log and its text are printed by a thread that is not waited for at the end, so that both can
# be cut with status 0 (ggml-org/llama.cpp#25504; seen in a third of the runs of Debian's 0.7.0 on
# a busy machine). A log file is written by the same thread and is cut at the same place.
# $1: the log, which is begun anew by each try; $2: the program; $3: how many options follow that
# are passed only if its help names them; then the argv.
_TRIES = f"""log=$1 program=$2 count=$3 tries=1 over= known=; shift 3
help=" $("$program" --help 2>&1 | tr '\\n,' '  ') "
while [ "$count" -gt 0 ]; do
  case $help in *" ${{1%% *}} "*) known="$known $1" ;; esac
  shift
  count=$((count - 1))
done
set -- "$program" $known "$@"
end() {{
  over=yes
  if [ -n "$child" ]; then kill "$child"; fi
}}
child=
trap end TERM
while :; do
  "$@" &
  child=$!
  if [ -n "$over" ]; then kill "$child"; fi
  wait "$child"
  status=$?
  if [ $status -ne 0 ] || [ $tries -ge {_MOST} ] || [ -n "$over" ]; then exit $status; fi
  if grep -q '_print: *total time =' "$log" 2>/dev/null; then exit 0; fi
  tries=$((tries + 1)) child=
  echo '{_AGAIN}'
done"""


# What scripts/snapdragon/run.py of ggml-org/llama.cpp (0c43469, read 2026-11-23) passes for HTP;
# its `-t 6` is for phones, so the number of threads is llama.cpp's own.
_BATCH, _SCRIPT = ("--ubatch-size", "1024"), ("-fa on", "--ubatch-size 1024")
_TEXT_ONLY = ("-no-cnv", "--no-display-prompt")


class LlamaOptions(Options, frozen=True):
    """`device` as --device takes it (HTP0, or HTP0,HTP1 for large models). `seed` and
    `temperature` are for llama-completion, whose own seed is another one each time.
    """

    model: str | None = None
    device: Annotated[
        str, Pattern(r"[A-Za-z0-9,]{1,60}", "device of llama.cpp", "write HTP0, or HTP0,HTP1")
    ] = "HTP0"
    gpu_layers: Annotated[int, Meta(ge=0)] = 99
    prompt_tokens: Annotated[int, Meta(ge=0)] = 128
    seed: Annotated[int, Meta(ge=0)] = 0
    temperature: Annotated[float, Meta(ge=0)] = 0.0
    repetitions: Annotated[int, Meta(ge=1)] = 1
    env: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)


class LlamaCppRunner(OwnProgram):
    """A .gguf model; libraries of CPU and DSP share one folder."""

    name = "llama.cpp"
    kinds = ("llama.cpp",)
    runtime: str | None = None
    layout = Layout(lib="lib", dsp="lib")

    def check(self, run: RunSpec) -> None:
        """Program, options, and a prompt for the program that takes one."""
        options = parsed(LlamaOptions, run.options, self.name)
        needs_program(run, self.name, "../build-snapdragon/bin/llama-bench")
        if run.program is not None and run.program.name == "llama-cli":
            raise InputError(
                "llama-cli is an interactive chat since llama.cpp b7348 and cannot run one prompt",
                hint="set `program:` to llama-completion of the same build",
            )
        if not _is_bench(run) and not run.prompt.strip():
            raise InputError(
                "llama-completion needs a prompt", hint="add `prompt:` to `run:` of the playbook"
            )
        for name in options.env:
            if not re.fullmatch(r"GGML_HEXAGON_[A-Z0-9_]+", name):
                raise InputError(
                    f"`env` under `run: options:` sets {name}, but fleet passes on only "
                    "variables whose names begin with GGML_HEXAGON_",
                    hint=f"remove {name} from `env:` in the playbook",
                )

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """One token."""
        kit = replace(kit, run=replace(kit.run, prompt=_HEALTH_PROMPT, timeout=timeout))
        return self._start(kit, prompt_tokens=1, tokens=1, repetitions=1)

    def start(self, kit: Kit) -> Start:
        """llama-bench: prompt and generation apart; llama-completion: the playbook's prompt."""
        options = parsed(LlamaOptions, kit.options, self.name)
        return self._start(
            kit,
            prompt_tokens=options.prompt_tokens,
            tokens=kit.run.max_tokens,
            repetitions=options.repetitions,
        )

    def _start(self, kit: Kit, *, prompt_tokens: int, tokens: int, repetitions: int) -> Start:
        options = parsed(LlamaOptions, kit.options, self.name)
        model = named(kit.bundle, options.model, ("*.gguf",), "model", "model")
        tool = program(kit.run, self.layout)
        htp = [device for device in options.device.split(",") if device.startswith("HTP")]
        argv = ["-m", model, "-ngl", str(options.gpu_layers), "-n", str(tokens)]
        if _is_bench(kit.run):
            argv = [tool, *argv, "--device", options.device.replace(",", "/")]
            argv += ["-p", str(prompt_tokens), "-r", str(repetitions), "-o", "json"]
            argv += _BATCH if htp and not {"-ub", "--ubatch-size"} & set(options.extra) else ()
            argv += options.extra
        else:
            argv += ["--device", options.device, "-f", "{work}/prompt.txt"]
            argv += ["--seed", str(options.seed), "--temp", f"{options.temperature:g}"]
            argv += ["-lv", "4", *options.extra]
            log, wished = "{work}/" + LOG, (*_TEXT_ONLY, *(_SCRIPT if htp else ()))
            argv = [log, tool, str(len(wished)), *wished, *argv, "--log-file", log]
            argv = ["sh", "-c", _TRIES, "fleet", *argv]
        collect = () if _is_bench(kit.run) else (LOG,)
        prompt, env = kit.run.prompt.encode(), {**_environment(htp), **options.env}
        return Start(tuple(argv), "bundle", collect, kit.run.timeout, prompt, env=env)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Rates, and where they are from: what is not of the NPU is a CPU fallback."""
        options = parsed(LlamaOptions, kit.options, self.name)
        problems = ending(start, ended)
        said = ended.stdout.decode("utf-8", "replace")
        if _is_bench(kit.run):
            found = llama_cpp.bench(said)
            elsewhere = llama_cpp.bench_elsewhere(said, options.device)
            if not problems:
                problems += [elsewhere] if elsewhere else []
                problems += [] if found else ["unreadable: no times in the output"]
            return Outcome(
                Metrics.of(found), "", None, tuple(problems), {"bench.json": ended.stdout}
            )
        log = ended.files.get(LOG, ended.stderr).decode("utf-8", "replace")
        found = llama_cpp.timings(log)
        if not problems and not llama_cpp.whole(log):
            problems.append(
                f"cut: llama.cpp lost the end of its output in all {_MOST} tries because of a "
                "known bug (ggml-org/llama.cpp#25504)"
            )
        elif not problems:
            elsewhere = llama_cpp.elsewhere(log, options.device)
            problems += [elsewhere] if elsewhere else []
            problems += [] if found else ["unreadable: no times in the output"]
        text = said.rpartition(_AGAIN)[2].strip()
        return Outcome(Metrics.of(found), text, None, tuple(problems), dict(ended.files))


def _environment(htp: list[str]) -> dict[str, str]:
    """What that script sets; GGML_HEXAGON_NDEV is that of builds before GGML_HEXAGON_DEVICES."""
    if not htp:
        return {}
    number = {"GGML_HEXAGON_NDEV": str(len(htp))} if len(htp) > 1 else {}
    return {"GGML_HEXAGON_DEVICES": ",".join(htp), "GGML_HEXAGON_OPPOLL": "1", **number}


def _is_bench(run: RunSpec) -> bool:
    return run.program is not None and "bench" in run.program.name
