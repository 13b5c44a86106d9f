"""`op_packages:` of a playbook: its shape, and the conversion to OpPackageSpec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from fleet.config.problems import Problems, near_hint
from fleet.config.shape import Body
from fleet.config.values import Doc, FilePath, Pattern
from fleet.config.yamlpos import Document, Keys
from fleet.model.op_package import OpPackageSpec

PackageName = Annotated[
    str,
    Pattern(
        r"(?!lib[A-Z])(?!.*\.so$)[A-Za-z0-9][A-Za-z0-9._+-]{0,63}",
        "name of an op package",
        "write the name without lib and .so, like QnnLLaMAPackage; on the device the files are "
        "lib<name>_CPU.so and lib<name>_HTP.so",
    ),
]
Symbol = Annotated[
    str,
    Pattern(
        r"[A-Za-z_][A-Za-z0-9_]{0,255}",
        "name of a function",
        "write the exported function, like LLaMAPackageInterfaceProvider",
    ),
]
Qairt = Annotated[
    str,
    Pattern(
        r"\d+\.\d+\.\d+(\.\d+)?",
        "QAIRT version",
        'write "2.41.0", or a full build id like "2.41.0.251128"',
    ),
]


class OpPackageBody(Body, frozen=True, kw_only=True):
    """An op package: the same source built for the CPU and for the DSP."""

    name: Annotated[
        PackageName,
        Doc("Name on the device: the files become lib<name>_CPU.so and lib<name>_HTP.so."),
    ]
    cpu: Annotated[FilePath, Doc("Library for the CPU (htp_aarch64), relative to the playbook.")]
    htp: Annotated[
        FilePath | None,
        Doc(
            "Library for the DSP (htp_v75), relative to the playbook; "
            "every device with a DSP needs it."
        ),
    ] = None
    provider: Annotated[
        Symbol | None,
        Doc(
            "Exported function that returns the op package's interface. Default: "
            "the only function whose "
            "name ends with InterfaceProvider."
        ),
    ] = None
    qairt: Annotated[
        Qairt | None, Doc("QAIRT version of the build, for libraries that do not contain it.")
    ] = None


def op_package_specs(
    bodies: Sequence[OpPackageBody],
    document: Document,
    problems: Problems,
    path: Callable[[str, Keys], Path],
) -> tuple[OpPackageSpec, ...]:
    """Return the specifications of the section; errors go to `problems`. `path` resolves a text."""

    def library(text: str, keys: Keys) -> Path:
        file = path(text, keys)
        if not file.is_file():
            folder = file.is_dir()
            message = (
                f"the op package library {file} {'is a folder' if folder else 'does not exist'}"
            )
            hint = f"name a .so file: ls {file}" if folder else near_hint(file)
            problems.add(message, document.value(keys), hint)
        return file

    specs: list[OpPackageSpec] = []
    for index, body in enumerate(bodies):
        keys: Keys = ("op_packages", index)
        if body.name in {spec.name for spec in specs}:
            problems.add(
                f"the op package {body.name} is listed twice",
                document.value((*keys, "name")),
                "remove one of the two, or rename it",
            )
        specs.append(
            OpPackageSpec(
                name=body.name,
                cpu=library(body.cpu, (*keys, "cpu")),
                htp=library(body.htp, (*keys, "htp")) if body.htp else None,
                provider=body.provider,
                qairt=body.qairt,
            )
        )
    return tuple(specs)
