"""The runner `llama.cpp`: llama-bench and llama-completion with the Hexagon backend.

See docs/sources/deployment.md 5. It brings its own DSP libraries and needs no QAIRT. It falls back
to the CPU silently, so a run counts only if llama.cpp itself reports that it was on the NPU.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, field

from fleet.bundles.gguf import PART
from fleet.config.values import Pattern
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.profiles.formats import llama_cpp
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Options, OwnProgram, ending, named, only, parsed, program

LOG = "llama.log"
_PROGRAMS = ("bench", "completion", "mtmd", "perplexity")
_HEALTH_PROMPT = "hi"
_MOST = 5
_AGAIN = "[fleet: llama.cpp lost the end of its output; it is run again]"
# llama.cpp does not wait at its end for the thread that prints its log and its text, so both can
# be cut with status 0 (ggml-org/llama.cpp#25504; in a third of the runs of Debian's 0.7.0 on
# a busy machine). The same thread writes a log file, which is cut at the same place.
# $1: the log, which each try overwrites; $2: the program; $3: the number of options that follow and
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


# Options that scripts/snapdragon/run.py of ggml-org/llama.cpp (0c43469, read 2026-11-23) passes
# for HTP. Its `-t 6` is for phones, so llama.cpp chooses the number of threads here.
_BATCH, _SCRIPT = ("--ubatch-size", "1024"), ("-fa on", "--ubatch-size 1024")
_TEXT_ONLY = ("-no-cnv", "--no-display-prompt")


class LlamaOptions(Options, frozen=True):
    """The options. `model` is the first part of a split model.

    `mmproj` and `image` are for llama-mtmd-cli. `device` has the form of --device (HTP0, or
    HTP0,HTP1 for large models). `seed` and `temperature` are for llama-completion, whose default
    seed differs each time.
    """

    model: str | None = None
    mmproj: str | None = None
    image: str | None = None
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
    """The runner of .gguf models; the libraries of CPU and DSP share one folder."""

    name = "llama.cpp"
    kinds = ("llama.cpp",)
    options = LlamaOptions
    default_for = ("llama.cpp",)
    needs_program = "../build-snapdragon/bin/llama-bench"
    formats = ("llama_cpp",)
    runtime: str | None = None
    layout = Layout(lib="lib", dsp="lib")

    def check(self, run: RunSpec) -> None:
        """Check the program, the options, and that a program that needs a prompt has one."""
        super().check(run)
        options = parsed(LlamaOptions, run.options, self.name)
        if run.program is not None and run.program.name == "llama-cli":
            raise InputError(
                "llama-cli is an interactive chat since llama.cpp b7348 and cannot run one prompt",
                hint="set `program:` to llama-completion of the same build",
            )
        name = run.program.name if run.program else ""
        if name.startswith("llama-") and not any(word in name for word in _PROGRAMS):
            raise InputError(
                f"the runner llama.cpp cannot read the output of the program {name}; it runs "
                "llama-bench, llama-completion, llama-perplexity and llama-mtmd-cli",
                hint="set `runner: exec` in the playbook, and say under `options: parse:` how the "
                "output is read",
            )
        if not _is_bench(run) and not run.prompt.strip():
            raise InputError(
                f"{name} needs a prompt", hint="add `prompt:` to `run:` of the playbook"
            )
        for name in options.env:
            if not re.fullmatch(r"GGML_HEXAGON_[A-Z0-9_]+", name):
                raise InputError(
                    f"`env` under `run: options:` sets {name}, but fleet passes on only "
                    "variables whose names begin with GGML_HEXAGON_",
                    hint=f"remove {name} from `env:` in the playbook",
                )

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start that generates one token."""
        kit = replace(kit, run=replace(kit.run, prompt=_HEALTH_PROMPT, timeout=timeout))
        return self._start(kit, prompt_tokens=1, tokens=1, repetitions=1)

    def start(self, kit: Kit) -> Start:
        """Return the start of one run.

        llama-bench measures prompt and generation separately; llama-completion uses the playbook's
        prompt.
        """
        options = parsed(LlamaOptions, kit.options, self.name)
        return self._start(
            kit,
            prompt_tokens=options.prompt_tokens,
            tokens=kit.run.max_tokens,
            repetitions=options.repetitions,
        )

    def _start(self, kit: Kit, *, prompt_tokens: int, tokens: int, repetitions: int) -> Start:
        options = parsed(LlamaOptions, kit.options, self.name)
        model = _model(kit, options)
        tool = program(kit.run, self.layout)
        htp = [device for device in options.device.split(",") if device.startswith("HTP")]
        argv = ["-m", model, "-ngl", str(options.gpu_layers), "-n", str(tokens)]
        if _is_bench(kit.run):
            argv = [tool, *argv, "--device", options.device.replace(",", "/")]
            argv += ["-p", str(prompt_tokens), "-r", str(repetitions), "-o", "json"]
            argv += _BATCH if htp and not {"-ub", "--ubatch-size"} & set(options.extra) else ()
            argv += options.extra
        elif _is_mtmd(kit.run):
            return self._vision(kit, options, [tool, *argv])
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

    def _vision(self, kit: Kit, options: LlamaOptions, argv: list[str]) -> Start:
        """Return the start of llama-mtmd-cli: model, projector, and an image of the bundle."""
        projector = named(kit.bundle, options.mmproj, ("*mmproj*.gguf",), "projector", "mmproj")
        argv += ["--mmproj", projector, "--device", options.device, "-p", kit.run.prompt]
        if options.image is not None:
            argv += ["--image", named(kit.bundle, options.image, (), "image", "image")]
        argv += ["--seed", str(options.seed), "--temp", f"{options.temperature:g}"]
        argv += ["-lv", "4", "--log-file", "{work}/" + LOG, *options.extra]
        htp = [device for device in options.device.split(",") if device.startswith("HTP")]
        env = {**_environment(htp), **options.env}
        return Start(tuple(argv), "bundle", (LOG,), kit.run.timeout, env=env)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the rates, and where they were measured; a run off the NPU is a CPU fallback."""
        options = parsed(LlamaOptions, kit.options, self.name)
        problems = ending(start, ended)
        output = ended.stdout.decode("utf-8", "replace")
        if _is_bench(kit.run):
            numbers = llama_cpp.bench(output)
            elsewhere = llama_cpp.bench_elsewhere(output, options.device)
            if not problems:
                problems += [elsewhere] if elsewhere else []
                problems += [] if numbers else ["unreadable: no times in the output"]
            return Outcome(
                Metrics.of(numbers), "", None, tuple(problems), {"bench.json": ended.stdout}
            )
        log = ended.files.get(LOG, ended.stderr).decode("utf-8", "replace")
        numbers = llama_cpp.timings(log)
        if not problems and not llama_cpp.whole(log):
            name = kit.run.program.name if kit.run.program else "the program"
            known = "completion" in name and "llama_" in log
            problems.append(
                f"cut: llama.cpp lost the end of its output in all {_MOST} tries because of a "
                "known bug (ggml-org/llama.cpp#25504)"
                if known
                else f"cut: {name} ended without the times that llama.cpp prints at its end"
            )
        elif not problems:
            elsewhere = llama_cpp.elsewhere(log, options.device)
            problems += [elsewhere] if elsewhere else []
            problems += [] if numbers else ["unreadable: no times in the output"]
        text = output.rpartition(_AGAIN)[2].strip()
        return Outcome(Metrics.of(numbers), text, None, tuple(problems), dict(ended.files))


def _environment(htp: list[str]) -> dict[str, str]:
    """Return the environment that run.py sets for HTP.

    GGML_HEXAGON_NDEV is for builds that do not have GGML_HEXAGON_DEVICES yet.
    """
    if not htp:
        return {}
    number = {"GGML_HEXAGON_NDEV": str(len(htp))} if len(htp) > 1 else {}
    return {"GGML_HEXAGON_DEVICES": ",".join(htp), "GGML_HEXAGON_OPPOLL": "1", **number}


def _model(kit: Kit, options: LlamaOptions) -> str:
    """Return the model: not a projector, and the first part of a split model. Raises InputError."""
    if options.model is not None:
        return named(kit.bundle, options.model, (), "model", "model")
    others = [
        item
        for item in kit.bundle.files
        if "mmproj" not in item.name.lower() and _is_first(item.name)
    ]
    return only(replace(kit.bundle, files=tuple(others)), ("*.gguf",), "model", "model")


def _is_first(name: str) -> bool:
    part = PART.search(name)
    return part is None or int(part[1]) == 1


def _is_mtmd(run: RunSpec) -> bool:
    return run.program is not None and "mtmd" in run.program.name


def _is_bench(run: RunSpec) -> bool:
    return run.program is not None and "bench" in run.program.name
