"""The runner `genai`: a complete folder of onnxruntime-genai, a prompt in and text out.

onnxruntime-genai loads the model with the QNN provider that `genai_config.json` names. A folder
that names none would run on the CPU and is a CPU fallback. If the decoder is one model, the session
is opened with the CPU switched off, so that it opens only if QNN took every node. The device that
genai itself reports is no proof, because it is the CPU with QNN too.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from fleet.bundles.ep.genai import GENAI
from fleet.bundles.genie import corrected_file
from fleet.bundles.ort import providers_in, providers_of
from fleet.device.texts import path_of
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import TIMED_OUT, Options, has_program
from fleet.runners.ort import EMULATED_SOC, PACKAGE_FOLDER, requirements
from fleet.runners.scripted import OUTCOME, Scripted, finished, script_argv, token_times

# The version whose interface is used here needs onnxruntime 1.31. Wheels for x86_64, aarch64 and
# win_arm64, CPython 3.11 and later.
PACKAGE = "onnxruntime-genai==0.18.0"
# From 0.17.0 on, a cache that slides by a window is created only for a device with shared memory of
# the HTP; others get a cache of another shape (`past_key_0_in ... Got: 1`). 0.16.0 creates it for
# every device (0.14.0 to 0.18.0 were tested on the HTP emulator).
PACKAGE_WINDOWED = "onnxruntime-genai==0.16.0"
SCRIPT = "run/fleet_genai.py"
_ELSEWHERE = re.compile(r"(^|qnn)(gpu|dsp|saver|ir)\b", re.IGNORECASE)
_STATUS = {
    10: "cut: the prompt is longer than the context length of the model",
    11: "failed: the NPU session could not be opened",
    12: "failed: the model could not generate tokens",
}


class GenaiOptions(Options, frozen=True):
    """The options: none, because genai_config.json has those of the search."""


class GenaiRunner(Scripted):
    """The runner of folders of onnxruntime-genai."""

    name = "genai"
    kinds = ("ort",)
    options = GenaiOptions
    needs_prompt = True
    formats = ("scripted",)
    runtime: str | None = "ort"
    layout = Layout(lib=PACKAGE_FOLDER, dsp=PACKAGE_FOLDER)
    windows = layout

    def check(self, run: RunSpec) -> None:
        """Check that there are no options, and no program of the playbook."""
        super().check(run)
        has_program(run, self.name, "its own program", "`program:` and `libraries:`")

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the script, and the packages for the Python of the device."""
        refuse_elsewhere(kit.bundle.config.get("genai"))
        source = path_of("fleet_genai.py")
        wanted = (*requirements(kit.build_id), package_for(kit.bundle))
        site = kit.site(wanted) if kit.site is not None else ()
        return (file_ref(source, SCRIPT, executable=True), *site)

    def corrected(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return genai_config.json with options of the provider that fit the device.

        Most public files name QnnHtp.dll, which Linux cannot open. With a windowed cache, the CPU
        is switched off in the file too, because onnxruntime-genai 0.16 cannot overlay parts of a
        configuration.
        """
        data = copy.deepcopy(kit.bundle.config.get("genai"))
        alone = _is_windowed(kit.bundle) and _switch_cpu_off(data)
        if not _fit(data, lambda options: _for_target(kit, options)) and not alone:
            return ()
        text = json.dumps(data, indent=2, ensure_ascii=False).encode()
        return (file_ref(corrected_file(GENAI, text), GENAI),)

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        genai = kit.bundle.config.get("genai")
        if not isinstance(genai, Mapping):
            raise InputError(
                f"the bundle {kit.bundle.name} has no genai_config.json",
                hint="set `runner: ort` in the playbook (it runs single ONNX models)",
            )
        model = genai.get("model")
        length = model.get("context_length") if isinstance(model, Mapping) else None
        spec = {
            "prompt": kit.run.prompt,
            "max_tokens": kit.run.max_tokens,
            "context": length if isinstance(length, int) else None,
            "npu_alone": isinstance(model, Mapping) and _npu_alone(model),
            "overlay": not _is_windowed(kit.bundle),
            "window": window_of(kit.bundle),
        }
        argv = script_argv(SCRIPT, timeout, *more)
        return Start(argv, "bundle", (OUTCOME,), timeout, kit.run.prompt.encode(), json.dumps(spec))

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the times that the loop measured.

        TTFT is the time of the pass of the prompt, including the first token.
        """
        try:
            data = json.loads(ended.files.get(OUTCOME, b"{}"))
        except ValueError:
            data = {}
        data = data if isinstance(data, dict) else {}
        problems: list[str] = []
        if "qnn" not in providers_of(kit.bundle):
            problems.append("cpu-fallback: genai_config.json does not select the QNN provider")
        if ended.status in TIMED_OUT:
            problems.append(f"cut: the program did not end within {start.timeout:g} s")
        elif ended.status:
            word = _STATUS.get(ended.status, f"failed: exit status {ended.status}")
            problems.append(f"{word}: {str(data.get('error', 'no reason given'))[:500]}")
        times = token_times(data)
        if not problems and "ttft_ms" not in times:
            problems.append("unreadable: the result file of the run contains no times")
        finish, cut, marks = finished(data, kit)
        text = data.get("text")
        metrics = Metrics.of(times)
        return Outcome(
            metrics,
            text if isinstance(text, str) else "",
            finish,
            (*problems, *cut),
            dict(ended.files),
            marks=marks,
        )


def _fit(part: object, change: Callable[[dict[str, Any]], bool]) -> bool:
    """Apply `change` to the options of the QNN provider in each part of a configuration.

    Returns True if any of them was changed.
    """
    changed = False
    for name, member in part.items() if isinstance(part, dict) else enumerate(_list(part)):
        own = isinstance(member, dict) and str(name).lower() == "qnn"
        changed |= change(member) if own else _fit(member, change)
    return changed


def _list(part: object) -> list[Any]:
    return part if isinstance(part, list) else []


def _for_target(kit: Kit, options: dict[str, Any]) -> bool:
    """Set the options of the provider that depend on the device. Return True if one was set.

    The name of the backend library depends on the system. The HTP emulator has no shared memory of
    an HTP, and needs a chip to compile for.
    """
    before = dict(options)
    mine, other = kit.backends
    path = options.get("backend_path")
    if isinstance(path, str) and re.split(r"[/\\]", path)[-1].lower() == other.lower():
        options["backend_path"] = mine
    if kit.emulator:
        options.pop("enable_htp_shared_memory_allocator", None)
        if not kit.bundle.contexts:
            options.setdefault("soc_model", EMULATED_SOC)
    return options != before


def refuse_elsewhere(part: object, place: str = "") -> None:
    """Raise InputError for a part of genai_config.json that no Qualcomm board can run.

    Such a part has a provider that is neither QNN nor the CPU, or QNN with a backend other than
    HTP.
    """
    rows = list(part.items()) if isinstance(part, dict) else []
    rows = list(enumerate(part)) if isinstance(part, list) else rows
    for key, value in rows:
        if key == "provider_options" and isinstance(value, list):
            for name, options in (row for item in value if isinstance(item, dict)
                                  for row in item.items()):  # fmt: skip
                _refuse_provider(str(name), options, place)
        else:
            refuse_elsewhere(value, f"{place}.{key}" if place else str(key))


def _refuse_provider(name: str, options: object, place: str) -> None:
    place = place.removesuffix(".session_options")
    if name.lower() not in {"qnn", "cpu"}:
        raise InputError(
            f"{GENAI} selects the provider {name} for {place}, "
            "but boards have QNN and the CPU only",
            hint=f"export the model for QNN, or remove {name} from provider_options of {place} "
            "(that part then runs on the CPU)",
        )
    asked = options if isinstance(options, dict) else {}
    for key in ("backend_type", "backend_path"):
        backend = str(asked.get(key, "")) if name.lower() == "qnn" else ""
        if _ELSEWHERE.search(backend):
            raise InputError(
                f"{GENAI} selects the QNN backend {backend} for {place}, and fleet runs HTP only",
                hint=f"export the model for the NPU, and remove {key} from {place}",
            )


def package_for(bundle: Bundle) -> str:
    """Return the package that runs a folder; a cache that slides by a window needs another one."""
    return PACKAGE_WINDOWED if _is_windowed(bundle) else PACKAGE


def window_of(bundle: Bundle) -> int:
    """Return the number of tokens to whose multiple a prompt is padded."""
    sliding = _sliding(bundle)
    size = sliding.get("window_size") if sliding.get("slide_inputs", True) else 1
    return size if isinstance(size, int) and size > 0 else 1


def _is_windowed(bundle: Bundle) -> bool:
    return _sliding(bundle).get("slide_key_value_cache") is True


def _switch_cpu_off(part: object) -> bool:
    """Switch the CPU off in every part that names QNN. Return True if there is such a part."""
    members = list(part.values()) if isinstance(part, dict) else _list(part)
    changed = [_switch_cpu_off(member) for member in members]
    options = part.get("session_options") if isinstance(part, dict) else None
    if isinstance(options, dict) and "qnn" in providers_in(options):
        options["session.disable_cpu_ep_fallback"] = "1"
        return True
    return any(changed)


def _sliding(bundle: Bundle) -> Mapping[str, Any]:
    value: object = bundle.config.get("genai")
    for key in ("model", "decoder", "sliding_window"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _npu_alone(model: Mapping[str, Any]) -> bool | list[str]:
    """Return True for a decoder of one model, and the parts that name QNN for a pipeline.

    The other parts of a pipeline are meant for the CPU.
    """
    decoder = model.get("decoder")
    pipeline = decoder.get("pipeline") if isinstance(decoder, Mapping) else None
    if not isinstance(pipeline, list) or not pipeline:
        return True
    parts = {
        str(name): part
        for stage in pipeline
        if isinstance(stage, dict)
        for name, part in stage.items()
    }
    return [name for name, part in parts.items() if "qnn" in providers_in(part)]
