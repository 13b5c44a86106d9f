"""The names that a playbook's system section needs from the device."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.model.system import LOADER_CONF, UDEV_RULES, SystemSpec, WantedFile
from fleet.ops.system.fastrpc import DEFAULT_GROUP, QNN_PACKAGES, RULE_FILE
from fleet.ops.system.packaging import packagings, qnn_packages
from fleet.ops.system.steps_packages import key_path, list_path, sources_text


@dataclass(frozen=True)
class Questions:
    """The names of packages, groups, files and units that the plan needs."""

    packages: tuple[str, ...]
    groups: tuple[str, ...]
    files: tuple[str, ...]
    units: tuple[str, ...]


def questions(spec: SystemSpec) -> Questions:
    """Return the names of everything that `provision` reads from the state."""
    rows = packagings().values() if spec.fastrpc != "off" else ()
    packages = [name for row in rows for name in (*row.packages, *row.companions)]
    packages += QNN_PACKAGES if rows else ()
    packages += [name.partition("=")[0] for name in spec.packages]
    packages += [deb_name(deb.name)[0] for deb in spec.debs]
    packages += qnn_packages()
    given = [version.group for row in rows for version in row.versions if version.group]
    groups = [*spec.groups, *spec.members, *given]
    files = [file.path for file in wanted_files(spec)] + [RULE_FILE] * bool(rows)
    units = [unit.name for unit in spec.units] + [row.unit for row in rows if row.unit]
    for repository in spec.repositories:
        files += [key_path(repository.name), list_path(repository.name)]
    return Questions(
        tuple(dict.fromkeys(packages)),
        tuple(dict.fromkeys([*groups, *([DEFAULT_GROUP] * bool(rows)), "render", "system"])),
        tuple(dict.fromkeys(files)),
        tuple(dict.fromkeys(units)),
    )


def wanted_files(spec: SystemSpec) -> tuple[WantedFile, ...]:
    """Return files, udev rules and ld.so.conf.d files of a spec as files."""
    rules = (WantedFile(UDEV_RULES + name, text.encode()) for name, text in spec.rules.items())
    paths = (
        WantedFile(LOADER_CONF + name, ("\n".join(folders) + "\n").encode())
        for name, folders in spec.library_paths.items()
    )
    return (*spec.files, *rules, *paths)


def repository_files(spec: SystemSpec) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Return repository name → (path, content) of its two files."""
    return {
        repository.name: (
            (key_path(repository.name), repository.key),
            (list_path(repository.name), sources_text(repository).encode()),
        )
        for repository in spec.repositories
    }


def deb_name(file_name: str) -> tuple[str, str]:
    """Return (package, version without epoch) of `name_version_arch.deb`.

    The name follows dpkg's convention (`dpkg-name`, `apt-get download`); `%3a` is a colon.
    """
    package, _, rest = file_name.removesuffix(".deb").partition("_")
    version = rest.rpartition("_")[0].replace("%3a", ":").replace("%3A", ":")
    return package, version.rpartition(":")[2]
