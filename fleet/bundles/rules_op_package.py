"""Rules about op packages: machine, Hexagon arch, version, provider. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.bundles.op_packages import ENTRIES
from fleet.bundles.rule import REFUSE, WARN, Case, Fault, rule, unknown
from fleet.model.op_package import CPU, HTP, OpLibrary, OpPackage
from fleet.model.runtime import same_build


def _libraries(case: Case) -> Iterator[tuple[OpPackage, OpLibrary]]:
    """Yield the libraries that go to this device. Libraries for a DSP do not go to the emulator."""
    for package in case.bundle.op_packages:
        for library in package.libraries:
            if case.has_dsp or library.role == CPU:
                yield package, library


@rule("op-package-machine", REFUSE, "mllm docs/qnn_backend/aot_execute.rst; onnxruntime-qnn UDO "
      "sample: one half alone ends with `Could not find an implementation` or 6001")  # fmt: skip
def op_package_machine(case: Case) -> Iterator[Fault]:
    """Each op package has a library for the DSP, and each library fits the machine and system."""
    for package in case.bundle.op_packages:
        if case.has_dsp and package.library(HTP) is None:
            yield Fault(
                f"the op package {package.name} has no library for the DSP, so its operations "
                "cannot run there",
                "no `htp:`",
                "a hexagon library",
                "build the library (make htp_<arch>) and set its path as `htp:` in the playbook",
            )
    for package, library in _libraries(case):
        want = "hexagon" if library.role == HTP else case.target_facts.machine
        if library.machine != want:
            yield _wrong_machine(case, package, library, want)
        elif library.system not in {None, case.target_facts.os}:
            yield Fault(
                f"{library.file.source}, `{library.role.lower()}:` of op package {package.name}, "
                f"was built for {library.system}: {case.target_facts.os} cannot load it",
                str(library.system),
                case.target_facts.os,
                f"build the library for {case.target}",
            )


def _wrong_machine(case: Case, package: OpPackage, library: OpLibrary, want: str) -> Fault:
    other = package.library(CPU if library.role == HTP else HTP)
    swapped = (
        other is not None
        and other.machine == want
        and "hexagon" in {library.machine, other.machine}
    )
    loader = "the DSP" if library.role == HTP else f"the loader of {case.target}"
    built = "with make htp_<arch>" if library.role == HTP else f"for {case.target}"
    return Fault(
        f"{library.file.source}, `{library.role.lower()}:` of op package "
        f"{package.name}, is a {library.kind} file: {loader} would refuse the file",
        library.kind,
        want,
        "swap the paths of `cpu:` and `htp:` in the playbook"
        if swapped
        else f"set `{library.role.lower()}:` to the library that was built {built}",
    )


@rule("op-package-arch", REFUSE, "mllm aot_execute.rst builds htp_v75 for SM8650; a Hexagon runs "
      "no code of a later arch; an earlier one was never seen to work by us")  # fmt: skip
def op_package_arch(case: Case) -> Iterator[Fault]:
    """Each op package's DSP library was built for the Hexagon arch of the device."""
    arch = case.facts.soc.hexagon_arch
    for package, library in _libraries(case):
        if library.role != HTP or library.machine != "hexagon":
            continue
        if arch is None:
            yield unknown(
                f"whether {library.file.source} ({library.hexagon_arch}) fits the Hexagon arch",
                str(library.hexagon_arch),
                "set the chip of this device in the inventory, for example `soc: SM8650`",
            )
        elif library.hexagon_arch != arch:
            yield Fault(
                f"{library.file.source} of op package {package.name} was built for "
                f"Hexagon {library.hexagon_arch}, but the device has {arch}",
                str(library.hexagon_arch),
                arch,
                f"build the op package with make htp_{arch}, and set the path of the library as "
                "`htp:` in the playbook",
            )


@rule("op-package-version", REFUSE, "QNN HTP API Revision History: `Please regenerate op package "
      "when moving to a new SDK version`; measured: QNN 2.51.0 only warns of an older one, and "
      "ends with 4008 for a newer one")  # fmt: skip
def op_package_version(case: Case) -> Iterator[Fault]:
    """Each op package was built with the very QAIRT version of the runtime."""
    need = case.runtime.build_id
    for package, library in _libraries(case):
        declared, where = package.declared, f"{library.file.source} of op package {package.name}"
        again = (
            f"build the op package again with QAIRT {case.runtime.version}, or set "
            "`runtime:` in the playbook to the version that it was built with"
        )
        if (
            declared
            and library.builds
            and not any(same_build(declared, own) for own in library.builds)
        ):
            yield Fault(
                f"the playbook says that {where} was built with QAIRT {declared}, "
                f"but the file itself says {' and '.join(library.builds)}",
                ", ".join(library.builds),
                declared,
                f"remove `qairt:` from op package {package.name} in the playbook",
            )
        elif len(library.builds) > 1 and not declared:
            yield Fault(
                f"{where} contains {len(library.builds)} different QAIRT build ids",
                ", ".join(library.builds),
                need,
                f"set the right version in the playbook: `qairt: {case.runtime.version}`",
            )
        elif not library.builds and not declared:
            yield Fault(
                f"{where} does not say which QAIRT it was built with",
                "unknown",
                need,
                "set `qairt:` in the playbook to the version of the SDK that built it",
            )
        else:
            known = [own for own in library.builds if not declared or same_build(declared, own)]
            have = known[0] if known else str(declared)
            if not same_build(have, need):
                yield Fault(
                    f"{where} was built with QAIRT {have}, but the runtime is {need}: an op "
                    "package works only with the QAIRT version that built it",
                    have,
                    need,
                    again,
                )


@rule("op-package-provider", REFUSE, "QnnBackend_registerOpPackage; libQnnHtp 2.51.0 of x86_64, "
      "measured: 4006 for a missing or hidden one, SIGSEGV for data")  # fmt: skip
def op_package_provider(case: Case) -> Iterator[Fault]:
    """Each op package exports its interface provider, under one name in both libraries."""
    for package in case.bundle.op_packages:
        going = [library for other, library in _libraries(case) if other is package]
        for library in going:
            if library.problem:
                yield Fault(
                    f"{library.file.source} of op package {package.name}: {library.problem}",
                    ", ".join(library.providers) or "no InterfaceProvider",
                    str(package.provider),
                    _offer(library.providers),
                )
        if package.provider is None:
            offers = "; ".join(
                f"{library.file.source.name} ({library.role}): "
                f"{', '.join(library.providers) or 'none'}"
                for library in going
            )
            names = sorted({name for library in going for name in library.providers})
            yield Fault(
                f"op package {package.name} exports no common interface provider: {offers}",
                ", ".join(names) or "no exported InterfaceProvider",
                "the same function name in every library",
                f'export {names[0]} from every library of the op package (extern "C")'
                if names
                else _offer(()),
            )


@rule("op-package-entry", REFUSE, "libQnnHtp 2.51.0 of x86_64, measured: 4005, `failed to load "
      "OpPackage in HexNN`; the DSP's side is inferred and warns")  # fmt: skip
def op_package_entry(case: Case) -> Iterator[Fault]:
    """Each op package exports the function that libQnnHtp calls first."""
    for package, library in _libraries(case):
        if not library.entry:
            yield Fault(
                f"{library.file.source} of op package {package.name} does not export "
                f"{' or '.join(ENTRIES)}: QNN would fail with 4005, `failed to load OpPackage`",
                "no entry function",
                " or ".join(ENTRIES),
                "put INIT_PKG_CORE_INIT_FUNC() into the interface source file of the "
                "op package (QNN 2.17 and later), as qnn-op-package-generator does",
                REFUSE if library.role == CPU else WARN,
            )


@rule("op-package-needs", REFUSE, "mllm's makefile links the aarch64 half with -lQnnHtp "
      "-lQnnHtpPrepare; libc++_shared.so is the NDK's and not part of Android")  # fmt: skip
def op_package_needs(case: Case) -> Iterator[Fault]:
    """The QNN libraries that an op package is linked with go to the device too."""
    there = {file.name.rsplit("/", 1)[-1] for file in case.selection.files}
    there |= {library.file.name for _, library in _libraries(case)}
    for package, library in _libraries(case):
        for name in library.needed if library.role == CPU else ():
            if name in there or not name.startswith(("libQnn", "libc++_shared")):
                continue
            qnn = name.startswith("libQnn")
            yield Fault(
                f"{library.file.source} of op package {package.name} needs {name}, but the runtime "
                f"{'does not bring this library to the device' if qnn else 'does not contain it'}",
                "not sent",
                name,
                f"add a runtime that has {name}: fleet runtime add <SDK>"
                if qnn
                else (
                    "add this library to `run: libraries:` in the playbook, or link the op "
                    "package with -static-libstdc++"
                ),
                REFUSE if qnn else WARN,
            )


def _offer(names: tuple[str, ...]) -> str:
    if names:
        return f"set `provider: {names[0]}` in the playbook, or another of the functions found"
    return 'declare the provider of the op package extern "C", and build the op package again'
