"""The runner `geniex`: geniex-bench of Qualcomm's GenieX, with its plugins qairt and llama_cpp.

Sources: qualcomm/GenieX cb60a5d (2026-08-21) and newer files of sdk/benchmark: options.c 697f6d8,
run.c 5298420, report.c 92c07df.

A release has the folders bin/ and lib/ of the archive. The files of lib/qairt/htp-files and
lib/llama_cpp of the archive are also in lib/, where GenieX's own test for Android puts them
(sdk/benchmark/qdc/tests/utils.py). The plugin of Android looks for QNN there, and the loader for
stubs.

geniex-bench prints the text of an answer in its accuracy mode only, which is one run without a
warm-up. Newer versions put the prompt of this mode into the model's chat template themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from fleet.config.values import Pattern
from fleet.model.errors import InputError, ProfileError
from fleet.model.files import FileRef, file_ref
from fleet.model.metrics import ANSWER
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.model.serve import ServeSpec
from fleet.model.suite import Suite, SuiteAnswer
from fleet.profiles.formats import geniex, llama_cpp
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start, reached_limit
from fleet.runners.options import (
    Options,
    OwnProgram,
    ending,
    named,
    only,
    own_files,
    parsed,
    program,
)

RESULT = "geniex.json"
QAIRT_FOLDER = "lib/qairt/htp-files"
_ENTRY = "libgeniex_plugin.so"
_PROMPT = ("--prompt-file", "{work}/prompt.txt")
_MADE_FOR = re.compile(r"htp-?(v\d\d)", re.IGNORECASE)  # libQnnHtpV73Skel.so, libggml-htp-v73.so
_TEMPLATED = re.compile(r"<\|[a-z_]+\|>|\[INST\]|<start_of_turn>|<\|im_start\|>")
_BESIDE = (
    "embedding_weights.raw",
    "embed_tokens.npy",
)  # read by the plugin, but no file names them
_NEEDS = ("genie_config.json", "tokenizer.json", "metadata.json")  # by name, in the bundle's folder
_FINISH = {"length": "token-limit", "eos": "eos", "stop_sequence": "eos", "completed": "eos"}
_MODES = Literal[
    "low_power_saver", "power_saver", "high_power_saver", "low_balanced", "balanced",
    "high_performance", "sustained_high_performance", "burst",
]  # fmt: skip
Positive = Annotated[int, Meta(ge=1)]


class GeniexOptions(Options, frozen=True):
    """The options. `text` selects the accuracy mode.

    `prompt_tokens` is the number of random tokens in place of the prompt. `warmups` and
    `repetitions` are those within one start of the program; those of `run:` are starts. `ctx_size`,
    `gpu_layers` and `threads` are options of the plugin llama_cpp.
    """

    plugin: Literal["qairt", "llama_cpp"] | None = None
    device: Annotated[
        str,
        Pattern(
            r"npu|gpu|cpu|hybrid|HTP\d+(,HTP\d+){0,15}",
            "device of GenieX",
            "write npu, gpu, cpu, hybrid, or HTP0,HTP1",
        ),
    ] = "npu"
    model: str | None = None
    mmproj: str | None = None
    images: list[str] = field(default_factory=list)
    text: bool | None = None
    prompt_tokens: Positive | None = None
    warmups: Annotated[int, Meta(ge=0)] = 0
    repetitions: Positive = 1
    ctx_size: Positive | None = None
    gpu_layers: Annotated[int, Meta(ge=-1)] | None = None
    threads: Positive | None = None
    seed: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    power_mode: _MODES | None = None
    extra: list[str] = field(default_factory=list)


class GeniexRunner(OwnProgram):
    """The runner of AI Hub's Genie bundles (plugin qairt) and of GGUF models (llama_cpp)."""

    name = "geniex"
    kinds = ("genie", "llama.cpp")
    options = GeniexOptions
    needs_program = (
        "{archive: https://.../geniex-bench-linux-arm64-VERSION.tar.gz, sha256: HEX, "
        "file: bin/geniex-bench}"
    )
    needs_prompt = True
    instead_of_prompt = ("prompt_tokens",)
    formats = ("geniex",)
    runtime: str | None = None
    layout = Layout(dsp="lib")

    def check(self, run: RunSpec) -> None:
        """Check the options, and refuse options that exclude each other."""
        super().check(run)
        options = parsed(GeniexOptions, run.options, self.name)
        if options.text and (options.warmups or options.repetitions > 1 or options.prompt_tokens):
            raise _contradiction(
                "text", "geniex-bench prints the text of one run without warm-up only"
            )
        if options.plugin == "qairt":
            _check_qairt(options)

    def carried_qairt(self, run: RunSpec) -> Path | None:
        """Return the folder of the QAIRT libraries that come with the program, or None."""
        options = parsed(GeniexOptions, run.options, self.name)
        folder = _root(run) / QAIRT_FOLDER
        return folder if options.plugin != "llama_cpp" and folder.is_dir() else None

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the program, its libraries, those of its plugin, and unnamed bundle files.

        Unnamed bundle files are those that the plugin opens by a fixed name.
        """
        root, plugin = _root(kit.run), _plugin(kit)
        if kit.run.program is not None and not (root / "lib" / plugin).is_dir():
            raise InputError(
                f"{kit.run.program} has no folder lib/{plugin} beside bin/: the plugin {plugin} of "
                "GenieX is missing",
                hint="use the whole folder of a geniex-bench archive, with bin/ and lib/",
            )
        files = {file.name: file for file in own_files(kit.run, self.layout)}
        for path in _libraries(root / "lib", plugin, kit.arch):
            inside = path.relative_to(root).as_posix()
            files.setdefault(inside, file_ref(path, inside))
            if path.name != _ENTRY:
                files.setdefault(f"lib/{path.name}", file_ref(path, f"lib/{path.name}"))
        return (*(files[name] for name in sorted(files)), *_beside(kit, plugin))

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start that loads the model and generates one token."""
        options = {"warmups": 0, "repetitions": 1, "text": False, "prompt_tokens": None}
        run = replace(kit.run, prompt="hi", max_tokens=1, timeout=timeout,
                      options={**kit.options, **options})  # fmt: skip
        return self.start(replace(kit, run=run))

    def start(self, kit: Kit) -> Start:
        """Return one start of geniex-bench on one model."""
        options = parsed(GeniexOptions, kit.options, self.name)
        plugin = _plugin(kit)
        if plugin == "qairt":
            _check_qairt(options)
            _check_bundle(kit)
        argv = [program(kit.run, self.layout), "--plugin", plugin, "--device", options.device]
        argv += ["-m", _model(kit, options, plugin), "-n", str(kit.run.max_tokens)]
        argv += _sampling(options, plugin)
        argv += ["--warmup", str(options.warmups), "-r", str(options.repetitions)]
        if options.prompt_tokens is not None:
            argv += ["-p", str(options.prompt_tokens)]
        else:
            argv += [*_PROMPT, *(("--accuracy",) if self._wants_text(kit, options) else ())]
        given = {
            "-c": options.ctx_size, "-ngl": options.gpu_layers, "-t": options.threads,
            "--power-mode": options.power_mode,
        }  # fmt: skip
        argv += [word for key, value in given.items() if value is not None
                 for word in (key, str(value))]  # fmt: skip
        if options.mmproj is not None or options.images:
            argv += _media(kit, options, plugin)
        if options.device == "hybrid" and _knows(kit.run, b"--log"):
            argv += ["--log", "debug"]  # llama.cpp then logs where the weights are
        argv += ["--output-json", "{work}/" + RESULT, *options.extra]
        env = {"GENIEX_PLUGIN_PATH": "{release}/lib"}
        prompt = kit.run.prompt.encode()
        return Start(tuple(argv), "bundle", (RESULT,), kit.run.timeout, prompt, env=env)

    def _wants_text(self, kit: Kit, options: GeniexOptions) -> bool:
        """Return whether the run uses the accuracy mode.

        Raises InputError if the model would get its chat template twice, or if the prompt would be
        split into several prompts.
        """
        single = options.repetitions == 1 and not options.warmups
        wanted = options.text if options.text is not None else single
        if not wanted:
            return False
        _check_text(kit, kit.run.prompt, "the prompt")
        return True

    def ask(self, kit: Kit, suite: Suite) -> Start | None:
        """Return the start of all questions, separated by lines of three dashes.

        Each question gets an empty KV cache. Returns None if the questions differ in their token
        limits, or if they are token ids.
        """
        limits = {question.max_tokens for question in suite.questions}
        prompts = [question.prompt for question in suite.questions]
        odd = any(_cuts(prompt) or not prompt.strip() for prompt in prompts)
        if len(limits) != 1 or odd or any(question.tokens for question in suite.questions):
            return None
        for prompt in prompts:
            _check_text(kit, prompt, "a prompt of the suite")
        options = {**kit.options, "text": True, "warmups": 0, "repetitions": 1}
        run = replace(kit.run, prompt=prompts[0], max_tokens=limits.pop(), options=options)
        start = self.start(replace(kit, run=run))
        whole = "\n---\n".join(prompts).encode()
        return replace(start, prompt=whole, timeout=kit.run.timeout * (len(prompts) + 1))

    def answers(self, start: Start, suite: Suite, ended: Ended) -> list[SuiteAnswer]:
        """Return the answers in the order of the questions, with tokens from the JSON file."""
        del start
        texts = geniex.texts(ended.stdout.decode("utf-8", "replace"))
        try:
            runs = geniex.runs_of(_result(ended))
        except ProfileError:
            runs = []
        if len(texts) != len(suite.questions):
            return []
        ends = [_ends(run) for run in runs] if len(runs) == len(texts) else []
        return [
            SuiteAnswer(question.name, text, finish=finish, generated_tokens=count)
            for question, text, (finish, count) in zip(
                suite.questions, texts, ends or [(None, None)] * len(texts), strict=True
            )
        ]

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the times of the run or medians of its repetitions; text in accuracy mode."""
        options = parsed(GeniexOptions, kit.options, self.name)
        problems, raw = ending(start, ended), dict(ended.files)
        try:
            data = _result(ended)
        except ProfileError as error:
            why = f"unreadable: {error.message}"
            return Outcome(problems=tuple(problems or [why]), raw=raw)
        runs = geniex.runs_of(data)
        alone = len(runs) == 1
        metrics = geniex.metrics_of_run(data, runs[0]) if alone else geniex.metrics_of_all(data)
        marks: tuple[str, ...] = (
            () if alone else (f"medians of {len(runs)} repetitions of geniex-bench",)
        )
        if options.device in {"cpu", "gpu"} and _plugin(kit) == "llama_cpp":
            marks += (options.device,)
        elif not problems:
            problems += filter(None, [_where(options, data, ended)])
        finish = _ends(runs[-1])[0] if runs else None
        if not problems and metrics == Metrics(source=metrics.source):
            problems.append("unreadable: no times in the JSON file of geniex-bench")
        if finish == "token-limit":
            more, limit = reached_limit(kit.run)
            problems, marks = [*problems, *more], (*marks, *limit)
        text = "\n".join(geniex.texts(ended.stdout.decode("utf-8", "replace")))
        return Outcome(metrics, text, finish, tuple(problems), raw, marks=marks)


def served_files(spec: ServeSpec, kit: Kit) -> tuple[FileRef, ...]:
    """Return the program `geniex` of a service with its libraries, in the folder geniex/."""
    assert spec.program is not None
    root, plugin = spec.program.parent, _plugin(kit)
    if plugin == "qairt":
        _check_bundle(kit)
    program = file_ref(spec.program, f"geniex/{spec.program.name}", executable=True)
    libraries = [
        file_ref(path, f"geniex/{path.relative_to(root).as_posix()}")
        for path in _libraries(root, plugin, kit.arch)
        if path != spec.program
    ]
    if not any(item.name == f"geniex/{plugin}/{_ENTRY}" for item in libraries):
        raise InputError(
            f"{root} has no {plugin}/{_ENTRY}: the plugin {plugin} of GenieX is missing",
            hint="use the whole folder of a geniex-cli archive, with the program geniex in it",
        )
    return (program, *libraries, *_beside(kit, plugin))


def served_config(spec: ServeSpec, kit: Kit, root: str) -> dict[str, Any]:
    """Return the values for `geniex serve` in the folder `root` of the device.

    The options of `run:` count for the service too, if its runner is geniex.
    """
    assert spec.program is not None
    own = kit.options if kit.run.runner == GeniexRunner.name else {}
    options, plugin = parsed(GeniexOptions, own, GeniexRunner.name), _plugin(kit)
    argv = ["--compute", options.device]
    for flag, value in (("--nctx", options.ctx_size), ("--ngl", options.gpu_layers)):
        argv += [] if value is None else [flag, str(value)]
    # the plugin qairt reads the folder of this file only
    model = "genie_config.json" if plugin == "qairt" else _gguf(kit, options)
    return {"root": root, "program": spec.program.name, "plugin": plugin, "model": model,
            "argv": argv}  # fmt: skip


def _beside(kit: Kit, plugin: str) -> list[FileRef]:
    """Return files that the plugin qairt reads, although no file of the bundle names them."""
    sent = {item.name for item in kit.bundle.files}
    names = [name for name in _BESIDE if plugin == "qairt" and name not in sent]
    return [file_ref(kit.bundle.root / name, f"bundle/{name}")
            for name in names if (kit.bundle.root / name).is_file()]  # fmt: skip


def _result(ended: Ended) -> dict[str, Any]:
    """Return the JSON object that geniex-bench wrote. Raises ProfileError."""
    return geniex.parsed(ended.files.get(RESULT, b"").decode("utf-8", "replace"))


def _ends(run: object) -> tuple[str | None, int | None]:
    """Return how one run ended, and its number of generated tokens."""
    row = run if isinstance(run, dict) else {}
    metrics = geniex.metrics_of_run({}, row)
    count = getattr(metrics, ANSWER.tokens)
    return _FINISH.get(str(row.get("stop_reason"))), None if count is None else int(count)


def _where(options: GeniexOptions, data: dict[str, object], ended: Ended) -> str:
    """Return why a run is not known to be on the NPU; for `hybrid` the log of llama.cpp shows
    it.
    """
    if options.device != "hybrid" or data.get("plugin") == "qairt":
        return geniex.device_problem(data)
    return llama_cpp.elsewhere(ended.stderr.decode("utf-8", "replace"))


def _plugin(kit: Kit) -> str:
    """Return the plugin for the bundle. Raises InputError for one that cannot run it."""
    fits = "qairt" if kit.bundle.kind == "genie" else "llama_cpp"
    plugin = kit.options.get("plugin") or fits
    if plugin != fits:
        raise InputError(
            f"the plugin {plugin} of GenieX cannot run a bundle of the kind {kit.bundle.kind}",
            hint=f"write `plugin: {fits}` under `run: options:`, or remove `plugin:`",
        )
    return str(plugin)


def _sampling(options: GeniexOptions, plugin: str) -> list[str]:
    """Return the words for seed and temperature; the plugin qairt leaves both to the bundle.

    For both plugins, 0 means that the value is not given (the bundle's value, or 0.8). A value
    below 0 means the likeliest token (sampler_config_utils.h and params.cpp of cb60a5d).
    """
    of_bundle = plugin == "qairt"
    seed = options.seed if options.seed is not None else 0 if of_bundle else 42
    words = ["--seed", str(seed)]
    if options.temperature is None and of_bundle:
        return words
    return [*words, "--temperature", f"{options.temperature or -1:g}"]


def _contradiction(option: str, why: str) -> InputError:
    return InputError(
        f"`{option}` under `run: options:` does not fit the other options: {why}",
        hint=f"remove `{option}:` from `run: options:` in the playbook",
    )


def _check_qairt(options: GeniexOptions) -> None:
    """Raise InputError for an option that the plugin qairt refuses or ignores."""
    why = "the plugin qairt runs on the NPU alone, with the context size of the bundle"
    for name in ("ctx_size", "gpu_layers", "threads", "mmproj"):
        if getattr(options, name) is not None:
            raise _contradiction(name, why)
    if options.device != "npu":
        raise _contradiction("device", why)


def _check_bundle(kit: Kit) -> None:
    """Raise InputError for a bundle without a file that the plugin qairt opens by its name."""
    sent = {item.name for item in kit.bundle.files}
    for name in _NEEDS:
        if name not in sent:
            raise InputError(
                f"GenieX opens {name} of a bundle, but {kit.bundle.root} does not have it",
                hint=f"get the bundle from AI Hub again, with {name}; or set `run: runner: genie`",
            )


def _check_text(kit: Kit, prompt: str, what: str) -> None:
    if _TEMPLATED.search(prompt) and _knows(kit.run, b"--chat-template"):
        raise InputError(
            f"{what} contains words of a chat template, but this geniex-bench puts the prompt "
            "into the model's chat template itself when it prints the text",
            hint="give the user's text alone as `prompt:`, or write `text: false` under "
            "`run: options:` (times without text)",
        )
    if _cuts(prompt):
        raise InputError(
            f"{what} has a line of three dashes, at which geniex-bench parts prompts",
            hint="change this line of the prompt, or write `text: false` under `run: options:`",
        )


def _cuts(prompt: str) -> bool:
    return any(line.strip() == "---" for line in prompt.splitlines())


def _root(run: RunSpec) -> Path:
    """Return the folder with bin/ and lib/; an empty path if the playbook names no program."""
    return run.program.parent.parent if run.program is not None else Path()


def _libraries(folder: Path, plugin: str, arch: str) -> Iterator[Path]:
    """Yield the libraries of the SDK in `folder` and of one plugin, with its other files.

    Of the libraries for one version of the Hexagon, yields those for `arch`; all of them if `arch`
    is "".
    """
    for path in (*sorted(folder.glob("*")), *sorted(folder.glob(f"{plugin}/**/*"))):
        made_for = _MADE_FOR.search(path.name)
        if arch and made_for and made_for[1].lower() != arch:
            continue
        if path.is_file() and (".so" in path.name or path.suffix in {".cat", ".json"}):
            yield path


def _knows(run: RunSpec, word: bytes) -> bool:
    """Return True if the program of the playbook has an option of this name."""
    return run.program is not None and _has(run.program, word)


@lru_cache(maxsize=64)
def _has(path: Path, word: bytes) -> bool:
    try:
        return re.search(re.escape(word) + rb"(?![\w-])", path.read_bytes()) is not None
    except OSError:
        return False


def _model(kit: Kit, options: GeniexOptions, plugin: str) -> str:
    if plugin == "qairt":
        return "{release}/bundle"
    return "{release}/bundle/" + _gguf(kit, options)


def _gguf(kit: Kit, options: GeniexOptions) -> str:
    """Return the name of the model file, which is the first one of several parts."""
    files = tuple(item for item in kit.bundle.files if "mmproj" not in item.name.lower())
    bundle = replace(kit.bundle, files=files)
    name = options.model or only(bundle, ("*-00001-of-*.gguf", "*.gguf"), "model", "model")
    return named(kit.bundle, name, (), "model", "model")


def _media(kit: Kit, options: GeniexOptions, plugin: str) -> list[str]:
    """Return the words for a vision model: its projector and images, which are bundle files."""
    argv = ["--vlm"] if plugin == "qairt" else []
    if plugin == "llama_cpp":
        projector = named(kit.bundle, options.mmproj, ("*mmproj*.gguf",), "projector", "mmproj")
        argv += ["--mmproj-path", "{release}/bundle/" + projector]
    for image in options.images:
        argv += ["--image", "{release}/bundle/" + named(kit.bundle, image, (), "image", "images")]
    return argv
