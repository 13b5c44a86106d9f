"""Op packages: read from their ELF files, named for the device, and formatted for the runners.

Machine and Hexagon arch come from the ELF header (e_machine, e_flags), never from the name of a
folder. The file contains its QAIRT version if the package sets `sdkBuildId` to QNN_SDK_BUILD_ID of
QnnSdkBuildId.h, as the SDK's own generator does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fleet.bundles.elfsymbols import Dynamic, NotReadableError, read_dynamic
from fleet.model.bundle import Bundle
from fleet.model.errors import BundleError, InputError, RuntimeStoreError, reason
from fleet.model.files import FileRef
from fleet.model.op_package import CPU, HTP, OpLibrary, OpPackage, OpPackageSpec
from fleet.runtimes.scan import identify

_MOST_BYTES = 1 << 30  # the packages of mllm and of the SDK's examples have some MB
# libQnnHtp 2.51.0 looks up the first function, then the second (dlsym, observed with LD_DEBUG).
# INIT_PKG_CORE_INIT_FUNC() of the SDK's headers defines the first function.
ENTRIES = ("op_pkg_init", "qhpi_init")
_BUILD_ID = re.compile(rb"(?<![0-9A-Za-z.])v(\d{1,3}\.\d{1,4}\.\d{1,4}\.\d{12})(?!\d)")
# LLaMAPackageInterfaceProvider, exampleInterfaceProvider, QnnOpPackage_interfaceProvider
_PROVIDER = re.compile(r"[A-Za-z_]\w*[Ii]nterfaceProvider|InterfaceProvider", re.ASCII)


def with_op_packages(bundle: Bundle, specs: Iterable[OpPackageSpec]) -> Bundle:
    """Return the bundle with the op packages of its playbook. Raises as inspect_op_package does."""
    return replace(bundle, op_packages=tuple(inspect_op_package(spec) for spec in specs))


def inspect_op_package(spec: OpPackageSpec) -> OpPackage:
    """Read both libraries of an op package.

    Wrong machines, versions and providers are data for the pre-flight. Raises BundleError with the
    name of the file that is missing, damaged or not a shared object.
    """
    named = {CPU: spec.cpu} | ({HTP: spec.htp} if spec.htp else {})
    read = [
        read_library(path, role, device_name(spec.name, role), wanted=spec.provider)
        for role, path in named.items()
    ]
    offered = {library.providers for library in read}
    sole = offered.pop() if len(offered) == 1 else ()
    provider = spec.provider or (sole[0] if len(sole) == 1 else None)
    return OpPackage(spec.name, tuple(read), provider, spec.qairt)


def device_name(name: str, role: str) -> str:
    """Return the name of a library on the device, such as `libQnnLLaMAPackage_CPU.so`.

    mllm's runner opens the libraries by these names (mllm QNNUtils.cpp, AOT docs).
    """
    return f"lib{name}_{role}.so"


def read_library(path: Path, role: str, name: str, *, wanted: str | None = None) -> OpLibrary:
    """Read a library of an op package. Raises BundleError.

    `wanted` is the provider that the library must export.
    """
    data = _bytes(path)
    try:
        machine, arch = identify(data, path.name)
        dynamic = read_dynamic(data)
    except (NotReadableError, RuntimeStoreError) as error:
        why = error.message if isinstance(error, RuntimeStoreError) else str(error)
        raise BundleError(
            f"{path} cannot be read as an op package: {why}",
            hint="copy the file again, or build the op package again (make htp_aarch64 or, for "
            "the DSP, make htp_v75)",
        ) from error
    return OpLibrary(
        role=role,
        file=FileRef(path, name, len(data), hashlib.sha256(data).hexdigest()),
        machine=machine,
        hexagon_arch=arch,
        system=None if machine == "hexagon" else _system(dynamic),
        builds=tuple(sorted({build.decode("ascii") for build in _BUILD_ID.findall(data)})),
        providers=tuple(sorted(filter(_PROVIDER.fullmatch, dynamic.functions))),
        problem=_lacks(dynamic, wanted) if wanted else "",
        needed=dynamic.needed,
        entry=next((name for name in ENTRIES if name in dynamic.functions), ""),
    )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BundleError(
            f"the op package {path} cannot be read: {reason(error)}",
            hint=f"give the path of its .so file; ls -l {path.parent} (shows what is there)",
        ) from error
    if len(data) > _MOST_BYTES:
        raise BundleError(
            f"{path} cannot be an op package: it is larger than 1 GB",
            hint="give the path of the op package's .so file",
        )
    return data


def _system(dynamic: Dynamic) -> str | None:
    if dynamic.android:
        return "android"
    return "linux" if "libc.so.6" in dynamic.needed else None


def _lacks(dynamic: Dynamic, wanted: str) -> str:
    if wanted in dynamic.functions:
        return ""
    if wanted in dynamic.others:
        return f"{wanted} {dynamic.others[wanted]}"
    mangled = f"_Z{len(wanted)}{wanted}"
    if any(name.startswith(mangled) for name in dynamic.functions):
        return f'{wanted} has only a C++ name in the library: declare the function extern "C"'
    return f"the library does not export {wanted}"


def op_package_files(packages: Iterable[OpPackage], *, dsp: bool) -> tuple[FileRef, ...]:
    """Return the libraries under their names in a release.

    `dsp` is False on the emulator. Code for the DSP then stays on the host.
    """
    folders = {CPU: "lib"} | ({HTP: "dsp"} if dsp else {})
    return tuple(
        replace(library.file, name=f"{folders[library.role]}/{library.file.name}")
        for package in packages
        for library in package.libraries
        if library.role in folders
    )


def net_run_option(packages: Iterable[OpPackage], *, dsp: bool, lib: str) -> str:
    """Return the value of qnn-net-run's `--op_packages`, or "" without op packages.

    The form is `path:provider:target`, comma-separated. `lib` is the folder of the CPU libraries as
    the program sees it. The DSP finds its own library by name in ADSP_LIBRARY_PATH. Without
    `dsp`, each package has only its CPU library, and no target. Raises BundleError if no provider
    is known, and InputError for a folder name that this form cannot contain.
    """
    return ",".join(entry for package in packages for entry in _entries(package, dsp=dsp, lib=lib))


def _entries(package: OpPackage, *, dsp: bool, lib: str) -> tuple[str, ...]:
    if package.provider is None:
        raise BundleError(
            f"fleet does not know the interface provider function of op package {package.name}",
            hint="set it in the playbook: `provider: <Something>InterfaceProvider`",
        )
    cpu = f"{_held(lib)}/{device_name(package.name, CPU)}:{package.provider}"
    if not dsp:
        return (cpu,)
    return (f"{cpu}:{CPU}", f"{device_name(package.name, HTP)}:{package.provider}:{HTP}")


def _held(text: str) -> str:
    if not text or ":" in text or "," in text:
        raise InputError(
            f"'{text}' must not contain ':' or ',', because QNN uses them as separators in its "
            "list of op packages",
            hint="rename the folder or the op type without ':' and ','",
        )
    return text
