"""Rules about the bundle and the runtime: files, damage, versions. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.bundles.context import is_htp
from fleet.bundles.rule import REFUSE, WARN, Case, Fault, rule, unknown
from fleet.model.bundle import ContextBinary
from fleet.model.runtime import BROUGHT, same_build, version_key
from fleet.runtimes.releases import (
    backend_api,
    litert_qairt,
    onnx_ir_version,
    package,
    sdk_command,
    wheel_for,
)
from fleet.runtimes.scan import check_consistent

_OTHER_ARCHIVE = (
    "use an archive of the program with another QAIRT, under `run: program:` in the playbook"
)
_AGAIN = "copy or export the bundle again, then check it: fleet bundle inspect {root}"


@rule("files-missing", REFUSE, "docs/sources/deployment.md 4; x86_f_missing.log")
def files_missing(case: Case) -> Iterator[Fault]:
    """Every file that the configuration names is in the bundle."""
    for item in case.bundle.missing:
        if item.pattern:
            continue  # the runner refuses it, unless an option names another file
        if item.placeholder:
            yield Fault(
                f"{item.named_by} has the placeholder {item.name} in place of a file name",
                item.name,
                "the name of a file of the bundle",
                f"write the file name in place of {item.name}, and copy the file into "
                f"{case.bundle.root}",
            )
            continue
        yield Fault(
            f"{item.named_by} refers to {item.name}, but the bundle does not contain this file",
            "no such file",
            item.name,
            f"copy {item.name} into {case.bundle.root}, or correct the name in {item.named_by}",
        )
    for key in case.bundle.absent:
        path = case.bundle.root / case.bundle.config_name
        yield Fault(
            f"{case.bundle.config_name} has no {key}, which Genie needs",
            "no such key",
            key,
            f"list the .bin files of this model under {key} in {path}"
            if key.endswith(".ctx-bins")
            else f"add {key} to {path}, or export the bundle again",
        )


@rule("context-damaged", REFUSE, "docs/sources/qairt.md 5; libQnnSystem 30010, measured")
def context_damaged(case: Case) -> Iterator[Fault]:
    """Every model file is what its name says: not cut, not empty, not something else."""
    sizes = {file.name: file.size for file in case.bundle.files}
    for item in case.bundle.faulty:
        yield Fault(
            f"{item.name}: {item.problem}",
            f"{sizes.get(item.name, 0)} bytes",
            "the complete file",
            _AGAIN.format(root=case.bundle.root),
        )


@rule("hash-mismatch", REFUSE, "docs/sources/qairt.md 5: QNN runs changed weights with wrong "
      "numbers")  # fmt: skip
def hash_mismatch(case: Case) -> Iterator[Fault]:
    """Every file has the hash that SHA256SUMS of the bundle gives."""
    for item in case.bundle.wrong_hashes:
        yield Fault(
            f"{item.name} was damaged or edited: its SHA-256 differs from {case.bundle.checked_by}",
            item.actual[:16],
            item.expected[:16],
            f"copy {item.name} again; if you edited it on purpose: cd "
            f"{case.bundle.root} && sha256sum <files> > {case.bundle.checked_by}",
        )


@rule("shards-mixed", REFUSE, "docs/sources/deployment.md 4; all shards of a model come from one "
      "link job")  # fmt: skip
def shards_mixed(case: Case) -> Iterator[Fault]:
    """All context binaries of a bundle come from one QAIRT build and are for one Hexagon arch."""
    shards = case.whole_contexts
    for what, values in (
        ("QAIRT build", [(item.name, item.build_id) for item in shards]),
        ("Hexagon arch", [(item.name, item.hexagon_arch) for item in shards]),
    ):
        known = [(name, value) for name, value in values if value]
        first = known[0] if known else ("", "")
        for name, value in known[1:]:
            if value != first[1]:
                yield Fault(
                    f"{name} and {first[0]} are from different exports: their {what} differ",
                    f"{name}: {value}",
                    f"{first[0]}: {first[1]}",
                    "export all parts of the model together, into an empty folder",
                )
                break


@rule("binary-newer-than-runtime", REFUSE, "5x5 matrix, docs/sources/qairt.md 5: error 5000, 10 of "
      "10; `Using newer context binary on old SDK` stands in libQnnHtp of aarch64 too; on "
      "hardware: qualcomm/ai-hub-apps issue 148, eivholt/qai-nemotron (IQ-9075)")  # fmt: skip
def binary_newer(case: Case) -> Iterator[Fault]:
    """No context binary needs a newer HTP backend API than the runtime has."""
    theirs = backend_api(case.runtime.build_id) if case.runtime.libraries else None
    for item in case.whole_contexts:
        mine = item.backend_api or (backend_api(item.build_id) if item.build_id else None)
        if mine is None or theirs is None:
            yield unknown(
                f"the backend API version of {(item.name if mine is None else case.runtime.id)}",
                f"not newer than {case.runtime.version}",
                "write the QAIRT version of the model into tool-versions.yaml",
            )
        elif _minor(mine) > _minor(theirs):
            yield Fault(
                f"{item.name} was built with QAIRT {item.build_id or mine}, but the runtime is "
                f"the older QAIRT {case.runtime.version}: QNN would refuse the file with error "
                "5000",
                f"QAIRT {item.build_id or 'unknown'}, backend API {mine}",
                f"at most QAIRT {case.runtime.version}, backend API {theirs}",
                f"{_get_runtime(case, item)}, or compile the model with "
                f"QAIRT {case.runtime.version}",
            )


def _minor(api: str) -> tuple[int, ...]:
    return version_key(api)[:2]


def _get_runtime(case: Case, item: ContextBinary) -> str:
    if case.runtime.source.kind == BROUGHT:
        return _OTHER_ARCHIVE
    if item.build_id and wheel_for(item.build_id) is None:
        return sdk_command(item.build_id, case.target)
    version = ".".join((item.build_id or "").split(".")[:3]) or "of the bundle"
    return f"fleet runtime fetch {version} --target {case.target}"


@rule("onnx-ir-too-new", REFUSE, "onnxruntime 1.27.0 and 1.31.1: Unsupported model IR version: 14, "
      "max supported IR version: 13; measured")  # fmt: skip
def onnx_ir_too_new(case: Case) -> Iterator[Fault]:
    """The onnxruntime of the release reads the format (IR version) of every ONNX model."""
    newest = onnx_ir_version()
    for name, model in case.bundle.config.get("models", {}).items():
        if model["ir_version"] > newest:
            yield Fault(
                f"{name} has the ONNX IR version {model['ir_version']}, but onnxruntime for "
                f"{package()} reads at most {newest}: it would fail with `Unsupported model IR "
                "version`",
                f"IR version {model['ir_version']}",
                f"IR version {newest} or older",
                f"export the model again with onnx.helper.make_model(..., ir_version={newest}), "
                f"or load it, set model.ir_version = {newest} and save it",
            )


@rule("litert-qairt", WARN, "LiteRT's qnn_manager.cc; `Qnn System library version 1.13.0 is "
      "mismatched`, measured with its compiler plugin; google-ai-edge/LiteRT-LM#1121")  # fmt: skip
def litert_qairt_too_old(case: Case) -> Iterator[Fault]:
    """The runtime is not older than the QAIRT that LiteRT was built with."""
    litert, oldest = litert_qairt()
    if case.bundle.kind != "litert" or not case.runtime.libraries:
        return
    if version_key(case.runtime.version)[:2] < version_key(oldest):
        yield Fault(
            f"LiteRT {litert} needs QAIRT {oldest} or newer, but the runtime is "
            f"{case.runtime.version}: LiteRT would fail with `Failed to set up QNN manager`",
            f"QAIRT {case.runtime.version}",
            f"QAIRT {oldest} or newer",
            'set `runtime: "2.51.0"` in the playbook, or build the dispatch library against '
            f"QAIRT {case.runtime.version}",
        )


@rule("runtime-differs", WARN, "docs/sources/deployment.md 1: older on newer works, 15 of 15 pairs "
      "2.47-2.51")  # fmt: skip
def runtime_differs(case: Case) -> Iterator[Fault]:
    """The runtime is the very build that made the context binaries."""
    if not case.runtime.libraries:
        return
    theirs = version_key(case.runtime.build_id)
    for item in case.whole_contexts[:1]:
        if item.build_id is None or same_build(item.build_id, case.runtime.build_id):
            continue
        if version_key(item.build_id)[:2] > theirs[:2]:
            continue  # binary-newer-than-runtime reports it
        order = "a newer" if theirs > version_key(item.build_id) else "an older"
        yield Fault(
            f"{item.name} was compiled with another QAIRT build than the runtime, which is "
            f"{order} build",
            case.runtime.build_id,
            item.build_id,
            _get_runtime(case, item),
        )


@rule("runtime-mixed", REFUSE, "docs/sources/qairt.md 1, 6: Stub lib id mismatch, error 1008")
def runtime_mixed(case: Case) -> Iterator[Fault]:
    """Backend, stub, skel and Genie that go to the device are of one build."""
    for mismatch in check_consistent(case.libraries):
        yield Fault(
            f"{mismatch.message}: a run would fail with error 1008 or 14001",
            mismatch.have,
            mismatch.need,
            _OTHER_ARCHIVE
            if case.runtime.source.kind == BROUGHT
            else f"fleet runtime remove {case.runtime.id}, then add one SDK or wheel",
            mismatch.severity,
        )


@rule("runtime-incomplete", REFUSE, "runtime_files.yaml: files that each runner needs")
def runtime_incomplete(case: Case) -> Iterator[Fault]:
    """The runtime has every file that the runner needs on this device."""
    for path in case.selection.missing:
        yield Fault(
            f"the runner needs the file {path}, but the runtime {case.runtime.id} does not "
            "contain it",
            "no such file",
            path,
            "add an SDK or wheel that has this file: fleet runtime add <SDK or wheel>; `fleet "
            f"runtime show {case.runtime.id} --files` lists the files of the runtime",
        )
    arch, runtime = case.facts.soc.hexagon_arch, case.runtime
    if (
        runtime.source.kind == BROUGHT
        and case.has_dsp
        and arch not in {None, *runtime.hexagon_archs}
    ):
        yield Fault(
            f"the QAIRT that the program brings has no skel for Hexagon {arch}",
            ", ".join(runtime.hexagon_archs) or "no skel",
            f"{arch}",
            _OTHER_ARCHIVE,
        )


@rule("backend-cpu", WARN, "docs/sources/deployment.md 4: backend types QnnHtp, "
      "QnnGenAiTransformer, QnnGpu")  # fmt: skip
def backend_cpu(case: Case) -> Iterator[Fault]:
    """The bundle runs on the NPU: backend QnnHtp, context binaries for HTP."""
    for engine in case.bundle.engines:
        if engine.backend in {None, "QnnHtp"}:
            continue
        role = f"the {engine.role} engine of " if engine.role else ""
        config = case.bundle.config_name
        by_design = len(case.bundle.engines) > 1 and engine.role in {"draft", "secondary"}
        yield Fault(
            f"{role}the bundle uses the Genie backend "
            f"{engine.backend}, which does not run on the NPU",
            str(engine.backend),
            "QnnHtp",
            f"nothing, if {config} is meant so: the other engine runs on the NPU"
            if by_design
            else f"export the model for the NPU (backend type QnnHtp); {config} alone cannot "
            "change where a model runs",
        )
    for item in case.whole_contexts:
        if not is_htp(item):
            yield Fault(
                f"{item.name} was compiled for another QNN backend than HTP",
                f"backend id {item.backend_id}",
                "backend id 6 (HTP)",
                "compile the model for the HTP backend",
            )
