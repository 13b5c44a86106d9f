"""Rules about the chip, the target build and the binaries' chip. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleet.bundles.chips import chips_in
from fleet.bundles.rule import REFUSE, WARN, Case, Fault, rule, unknown
from fleet.facts.soc import OLDEST_HTP, by_chip, by_kernel_id, by_soc_model, models_of, no_htp
from fleet.model.facts import Soc
from fleet.model.runtime import version_key

_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
_MODELS = (".pte", ".bin", ".dlc", ".tflite", ".onnx", ".so", ".mllm")
_GCC11 = "aarch64-oe-linux-gcc11.2"


@rule("soc-unknown", REFUSE, "design.md: unknown is a value, nothing is derived from it")
def soc_unknown(case: Case) -> Iterator[Fault]:
    """The chip of the device is in the SoC table, or the inventory names it."""
    soc = case.facts.soc
    if not case.selection.npu or (soc.chip and (soc.hexagon_arch or soc.htp is False)):
        return
    soc_id = f"soc_id {soc.kernel_soc_id}" if soc.kernel_soc_id is not None else "no soc_id"
    what = f"the Hexagon arch of {soc.chip}" if soc.chip else "the chip of the device"
    yield Fault(
        f"fleet does not know {what} ({soc_id}, "
        f"{soc.model or soc.machine or 'no device tree model'})"
        f"{': ' + soc.conflict if soc.conflict else ''}",
        f"{soc_id}, source {soc.source}",
        "a chip of the SoC table",
        "set the chip of this device in the inventory, for example `soc: QCS9075`",
    )


@rule("soc-no-htp", REFUSE, "axinc-ai/ailia-models-kotlin PR 33: chips by HTP arch, as QAIRT 2.47 "
      "lists them; libQnnHtp 2.51 reports no HTP device for them")  # fmt: skip
def soc_no_htp(case: Case) -> Iterator[Fault]:
    """The chip has an HTP: QAIRT has no backend for the NPU of older and smaller ones."""
    if case.has_npu and case.facts.soc.htp is False:
        yield Fault(
            no_htp(case.facts.soc),
            "no HTP",
            f"a chip with Hexagon v{OLDEST_HTP} or newer",
            "use another board, or a runner for the CPU or GPU of this board",
        )


@rule("soc-conflict", WARN, "docs/sources/deployment.md 3: a conflict of sources is a warning")
def soc_conflict(case: Case) -> Iterator[Fault]:
    """All sources say the same chip."""
    soc = case.facts.soc
    if soc.conflict and soc.chip:
        yield Fault(
            f"the device reports contradictory facts about its chip: {soc.conflict}",
            soc.conflict,
            f"{soc.chip} everywhere",
            "check the chip on the board, then correct `soc:` in the inventory; fleet facts "
            "(shows what the device reports)",
        )


@rule("target-wrong", REFUSE, "docs/sources/deployment.md 1: gcc9.4 has the V68 stub only and no "
      "Genie")  # fmt: skip
def target_wrong(case: Case) -> Iterator[Fault]:
    """The target build fits the device: machine, system, a stub for its arch, Genie."""
    target, facts = case.target_facts, case.facts
    machine = _MACHINES.get(facts.machine or "", facts.machine)
    cure = f"set `target: {_GCC11}` in the inventory, or remove `target:`"
    if machine is None:
        yield unknown(
            "the machine of the device", target.machine, "fleet facts (reads the device again)"
        )
    elif machine != target.machine:
        yield Fault(
            f"the QAIRT target {case.target} is for {target.machine}, but the device is "
            f"{machine}: programs would fail with `cannot open shared object file`",
            machine,
            target.machine,
            "remove `target:` from inventory and playbook; fleet then chooses the target",
        )
        return
    system = _system(case)
    if system is not None and system != target.os:
        yield Fault(
            f"the QAIRT target {case.target} is for {target.os}, but the device runs {system}",
            system,
            target.os,
            "remove `target:` from inventory and playbook; fleet then chooses the target",
        )
    arch = facts.soc.hexagon_arch
    npu = case.has_npu and facts.soc.htp is not False
    if npu and arch and target.stub_archs is not None and arch not in target.stub_archs:
        have = ", ".join(target.stub_archs) or "none"
        yield Fault(
            f"the QAIRT target {case.target} has no stub library for Hexagon {arch}: QNN would "
            "fail with error 14001",
            f"stubs: {have}",
            arch,
            cure,
        )
    if case.selection.runner == "genie" and not target.genie:
        yield Fault(
            f"the QAIRT target {case.target} has no libGenie.so", "no libGenie", "libGenie.so", cure
        )


def _system(case: Case) -> str | None:
    facts = case.facts
    if facts.os_family != "linux":
        return facts.os_family
    known = facts.libc or facts.os_id
    return "android" if facts.os_id == "android" else "linux" if known else None


@rule("soc-refused", REFUSE, "docs/sources/deployment.md 1: Dsp startup: Unsupported SoC model")
def soc_refused(case: Case) -> Iterator[Fault]:
    """The libraries of this target accept the SoC: they check it when they are loaded."""
    soc, refused = case.facts.soc, case.target_facts.refused_soc_models
    models = _device_models(soc)
    if case.has_dsp and models and models <= set(refused):
        yield Fault(
            f"the libraries of {case.target} do not support {soc.chip} (soc_model "
            f"{soc.soc_model}): they fail with `Dsp startup: Unsupported SoC model`, whatever "
            "the settings",
            f"soc_model {soc.soc_model}",
            f"a soc_model other than {', '.join(map(str, refused))}",
            f"set another target for this device in the inventory (`target: {_GCC11}`), "
            "or run Android on this chip",
        )


@rule("soc-too-new", REFUSE, "docs/sources/deployment.md 1: minimum QAIRT of a SoC; socs.yaml "
      "min_qairt")  # fmt: skip
def soc_too_new(case: Case) -> Iterator[Fault]:
    """The runtime is new enough to know the SoC."""
    if not case.runtime.libraries or not case.selection.npu:
        return
    row = by_chip(case.facts.soc.chip) if case.facts.soc.chip else None
    least = row.get("min_qairt") if row else None
    if least and version_key(case.runtime.version) < version_key(str(least)):
        yield Fault(
            f"QAIRT {case.runtime.version} is too old for the chip {case.facts.soc.chip}: QNN "
            "would fail with `No Snapdragon SOC detected`",
            case.runtime.version,
            f"QAIRT {least} or later",
            f"fleet runtime fetch <{least} or later> --target {case.target}",
        )


@rule("arch-mismatch", REFUSE, "QNN HTP docs: another arch may give indeterminate result; v81 on "
      "v73 is 5005, measured")  # fmt: skip
def arch_mismatch(case: Case) -> Iterator[Fault]:
    """Every context binary was compiled for the Hexagon arch of the device."""
    arch = case.facts.soc.hexagon_arch
    if arch is None:
        return  # soc-unknown reports it
    for item in case.whole_contexts:
        if item.hexagon_arch is None:
            yield unknown(
                f"the Hexagon arch of {item.name}",
                arch,
                f"compile the model for {case.facts.soc.chip}",
            )
        elif item.hexagon_arch != arch:
            yield Fault(
                f"{item.name} was compiled for {item.hexagon_arch}"
                f"{f' ({item.soc_type})' if item.soc_type else ''}, but the device has {arch}",
                item.hexagon_arch,
                arch,
                f"compile the model for {case.facts.soc.chip} "
                f"(soc_model {case.facts.soc.soc_model}, {arch})",
            )


@rule("vtcm-too-large", REFUSE, "onnxruntime-qnn qnn_cache_compatibility_manager.cc, "
      "docs/sources/deployment.md 8; the two values measured on our own files")  # fmt: skip
def vtcm_too_large(case: Case) -> Iterator[Fault]:
    """No context binary needs more VTCM than the chip has.

    A file has two numbers, which can differ. The file is refused only if both are known and too
    large. If only one number is too large, the rule warns.
    """
    room = case.facts.soc.vtcm_mb
    for item in case.whole_contexts:
        known = [n for n in (item.graph_vtcm_mb, item.vtcm_mb) if n is not None]
        if room is None or not known or max(known) <= room:
            continue
        sure = len(known) == 2 and min(known) > room
        yield Fault(
            f"{item.name} was compiled for {max(known)} MB of VTCM (memory of the "
            f"NPU), but {case.facts.soc.chip} has {room} MB",
            f"{max(known)} MB",
            f"at most {room} MB",
            f'compile the model again with `"vtcm_mb": {room}` in the HTP graph options',
            REFUSE if sure else WARN,
        )


@rule("soc-model-mismatch", WARN, "docs/sources/deployment.md 8: an SM8550 binary loads on QCS8550")
def soc_model_mismatch(case: Case) -> Iterator[Fault]:
    """Every context binary was compiled for this very SoC model, not only for its arch."""
    soc = case.facts.soc
    fine = _device_models(soc)
    for item in case.whole_contexts:
        models = _models_of(item.soc_model, item.soc_type)
        if not fine or not models or item.hexagon_arch != soc.hexagon_arch:
            continue
        if not models & fine:
            name = item.soc_type or "another chip"
            yield Fault(
                f"{item.name} was compiled for {name}, but the device is {soc.chip}; "
                "the Hexagon arch is the same, so the model may run, but slower",
                f"soc_model {', '.join(map(str, sorted(models)))}",
                f"soc_model {', '.join(map(str, sorted(fine)))}",
                f"compile the model for {soc.chip} (soc_model {soc.soc_model})",
            )


def _device_models(soc: Soc) -> set[int]:
    """Return every soc_model that stands for the device's chip."""
    return {model for model in (soc.soc_model, *soc.soc_model_candidates) if model is not None}


def _models_of(number: int | None, chip: str | None) -> set[int]:
    """Return the number of the metadata, or else the numbers of the table for the named chip."""
    if number is not None:
        return {number}
    row = by_chip(chip) if chip else None
    return set(models_of(row)) if row else set()


@rule("chip-in-name", WARN, "names of exports: hybrid_llama_qnn_SM8550.pte (ExecuTorch), "
      "NAME-qualcomm_snapdragon_8_elite.bin (AI Hub)")  # fmt: skip
def chip_in_name(case: Case) -> Iterator[Fault]:
    """A chip in the name of a model file has the Hexagon arch of the device."""
    arch = case.facts.soc.hexagon_arch
    known = {item.name for item in case.whole_contexts if item.hexagon_arch}
    for file in case.bundle.files if arch else ():
        rows = [row for row in chips_in(file.name.rpartition("/")[2]) if row.get("arch")]
        if not file.name.endswith(_MODELS) or file.name in known or not rows:
            continue
        if all(row["arch"] != arch for row in rows):
            yield Fault(
                f"{file.name} was made for {rows[0]['chip']} ({rows[0]['arch']}) by its name, but "
                f"the device is {case.facts.soc.chip} ({arch})",
                f"{rows[0]['chip']} ({rows[0]['arch']})",
                f"{case.facts.soc.chip} ({arch})",
                f"compile the model for {case.facts.soc.chip}, or rename the file if its name is "
                "wrong",
            )


@rule("ext-soc-model", REFUSE, "docs/sources/qairt.md 5, 6: unknown soc_model is 14001; on a real "
      "target `Specified config SOC, ignoring on real target`")  # fmt: skip
def ext_soc_model(case: Case) -> Iterator[Fault]:
    """The HTP extension file names the soc_model of the device, in QNN's numbers."""
    name = case.bundle.extensions_name
    for device in _devices(case.bundle.extensions):
        key = next((key for key in ("soc_model", "soc_id") if key in device), None)
        if key is not None:
            yield from _soc_number(case, f"devices.{key} in {name}", device[key])
        arch = device.get("dsp_arch", device.get("htp_arch"))
        have = case.facts.soc.hexagon_arch
        if isinstance(arch, str) and have and arch.lower().lstrip("v") != have.lstrip("v"):
            yield Fault(
                f"{name} sets dsp_arch {arch}, but the device has {have}",
                arch,
                have,
                f'set "dsp_arch": "{have}" in {name}',
                WARN,
            )


def _devices(extensions: dict[str, Any]) -> list[dict[str, Any]]:
    devices = extensions.get("devices")
    return (
        [device for device in devices if isinstance(device, dict)]
        if isinstance(devices, list)
        else []
    )


def _soc_number(case: Case, where: str, value: object) -> Iterator[Fault]:
    soc = case.facts.soc
    right = str(soc.soc_model) if soc.soc_model else "the soc_model of the device"
    cure = f"set soc_model to {right} in {case.bundle.extensions_name}"
    if type(value) is not int or value <= 0:
        yield Fault(
            f"{where} is not a valid soc_model: QNN would fail with error 14001",
            f"{value!r:.40}",
            right,
            cure,
        )
        return
    if not by_soc_model(value):
        kernel = by_kernel_id(value)
        if kernel is None:
            yield Fault(
                f"fleet does not know the soc_model {where}; QNN may fail with error 14001",
                str(value), right, cure, WARN
            )  # fmt: skip
            return
        number = ", ".join(map(str, models_of(kernel))) or right
        yield Fault(
            f"{where} is the kernel's soc_id of {kernel['chip']}, but QNN needs its "
            "own soc_model number; it would fail with error 14001",
            f"{value} (kernel soc_id)",
            f"{number} (QNN soc_model)",
            f"set soc_model to {number} in {case.bundle.extensions_name}",
        )
    elif soc.soc_model and value not in _device_models(soc):
        chips = "/".join(row["chip"] for row in by_soc_model(value)[:3])
        yield Fault(
            f"{where} stands for {chips}, but the device is {soc.chip}; a real device ignores "
            "this value",
            str(value), right, cure, WARN
        )  # fmt: skip
