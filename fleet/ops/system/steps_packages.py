"""Actions on packages and their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.model.command import Command
from fleet.model.system import FileSeen, Repository, WantedFile
from fleet.ops.system.step import SystemStep, argv
from fleet.ops.system.steps_files import NOT_THERE, WriteFile

# qcom-fastrpc1 depends on linux-firmware: 858 MB (docs/sources/deployment.md 6)
DOWNLOAD_SECONDS = 1800.0
LOCK_SECONDS = 120  # unattended-upgrades holds dpkg's lock for a minute after boot
# Configuration files of the device are kept, without a prompt.
_PURGE = ("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--purge", "--")
_APT = (
    *("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q"),
    *("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)


def key_path(name: str) -> str:
    """Return the path of a repository's key on the device."""
    return f"/etc/apt/keyrings/fleet-{name}.asc"


def list_path(name: str) -> str:
    """Return the path of a repository's source file on the device."""
    return f"/etc/apt/sources.list.d/fleet-{name}.sources"


@dataclass(frozen=True)
class AddRepository(SystemStep):
    """An action that adds a repository to apt. Its key is trusted for this repository only.

    `before` are the two existing files: key and source.
    """

    repository: Repository
    base: str
    before: tuple[FileSeen, FileSeen] = (NOT_THERE, NOT_THERE)

    @property
    def files(self) -> tuple[WriteFile, WriteFile]:
        """The key, and the source in deb822 format."""
        repository = self.repository
        text = sources_text(repository).encode()
        key = WantedFile(key_path(repository.name), repository.key)
        source = WantedFile(list_path(repository.name), text)
        old_key, old_source = self.before
        return WriteFile(key, self.base, old_key), WriteFile(source, self.base, old_source)

    def describe(self) -> str:
        """Return `add repository qcom: URI SUITE main, key ABCD...`."""
        repository = self.repository
        parts = " ".join((repository.uri, repository.suite, *repository.components))
        return f"add repository {repository.name}: {parts}, key {repository.fingerprint}"

    def staged(self) -> Mapping[str, bytes]:
        """Return both contents."""
        key, source = self.files
        return {**key.staged(), **source.staged()}

    def commands(self) -> tuple[Command, ...]:
        """Return commands that write both files, the key first."""
        key, source = self.files
        folder = argv("install", "-d", "-m", "0755", "--", "/etc/apt/keyrings")
        return (folder, *key.commands(), *source.commands())

    def undo_staged(self) -> Mapping[str, bytes]:
        """Return both old contents."""
        key, source = self.files
        return {**key.undo_staged(), **source.undo_staged()}

    def undo(self) -> tuple[Command, ...]:
        """Return commands that restore both files, the source first."""
        key, source = self.files
        return (*source.undo(), *key.undo())

    def as_shell(self) -> str:
        """Return shell text with both contents."""
        key, source = self.files
        return f"install -d -m 0755 /etc/apt/keyrings\n{key.as_shell()}\n{source.as_shell()}"


def sources_text(repository: Repository) -> str:
    """Return the source in deb822 format, see `man sources.list`."""
    lines = [
        "Types: deb",
        f"URIs: {repository.uri}",
        f"Suites: {repository.suite}",
        *([f"Components: {' '.join(repository.components)}"] if repository.components else []),
        f"Signed-By: {key_path(repository.name)}",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class RefreshPackages(SystemStep):
    """An action that refreshes the package lists."""

    manager: str = "apt"
    seconds = DOWNLOAD_SECONDS
    no_undo = "package lists are only a cache, so there is nothing to undo"

    def describe(self) -> str:
        """Return `refresh the package lists`."""
        return "refresh the package lists"

    def commands(self) -> tuple[Command, ...]:
        """Return apt-get update, or opkg update."""
        if self.manager == "opkg":
            return (argv("opkg", "update"),)
        return (argv(*_APT, "update"),)


@dataclass(frozen=True)
class InstallPackages(SystemStep):
    """An action that installs packages by name, `name=version`, or path of a .deb file.

    `brings` are all packages that are installed with it. `replaces` are those that exist in another
    version (`name version`), `size` is the required space. All come from the package manager's
    simulation, and are empty if it was not possible yet. The undo purges the new packages, or else
    the named ones. After the installation, `undo_of` uses what really came, including groups and
    users of maintainer scripts.
    """

    names: tuple[str, ...]
    manager: str = "apt"
    brings: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    size: str = ""
    seconds = DOWNLOAD_SECONDS

    def describe(self) -> str:
        """Return `install qcom-fastrpc1, acl (with 3 more: ...); replaces X 1.0; need to get 24
        kB`.
        """
        named = {bare_name(name) for name in self.names}
        more = [name for name in self.brings if name not in named]
        tail = f" (with {len(more)} more: {', '.join(more)})" if more else ""
        shown = ", ".join(name.rsplit("/", 1)[-1] for name in self.names)
        also = f"; replaces {', '.join(self.replaces)}" if self.replaces else ""
        return f"install {shown}{tail}{also}" + (f"; {self.size}" if self.size else "")

    def commands(self) -> tuple[Command, ...]:
        """Return one call of the package manager for all names, including recommended packages.

        The tutorials do the same: fastrpc-support only recommends the shells of the DSP.
        """
        if self.manager == "opkg":
            return (argv("opkg", "install", *self.names),)
        return (argv(*_APT, "install", "--", *self.names),)

    def undo(self) -> tuple[Command, ...]:
        """Return commands that purge the new packages."""
        older = dict(entry.split(" ", 1) for entry in self.replaces)
        every = self.brings or tuple(dict.fromkeys(bare_name(name) for name in self.names))
        gone = tuple(name for name in every if name not in older)
        if self.manager == "opkg":
            return (argv("opkg", "remove", *gone),)
        return undo_of(gone, tuple(f"{name}={version}" for name, version in older.items()), (), ())


def undo_of(
    packages: tuple[str, ...],
    older: tuple[str, ...],
    users: tuple[str, ...],
    groups: tuple[str, ...],
    namesakes: tuple[str, ...] = (),
) -> tuple[Command, ...]:
    """Return commands that purge new packages and restore `older` versions (`name=version`).

    They also remove users and groups that came with the packages. `namesakes` are users whose group
    of the same name existed before: userdel would remove it with its user.
    """
    back = ("--allow-downgrades", "--no-install-recommends", "install", "--", *older)
    return (
        # by dpkg: apt fails for names that are not installed
        *((argv(*_PURGE, *packages),) if packages else ()),
        *((argv(*_APT, *back),) if older else ()),
        *(argv("usermod", "-g", "nogroup", "--", name) for name in namesakes),
        *(argv("userdel", "--", name) for name in users),
        *(argv("groupdel", "--", name) for name in groups),
    )


def bare_name(name: str) -> str:
    """Return `qcom-fastrpc1` for `qcom-fastrpc1=1.0`, or for a path `qcom-
    fastrpc1_1.0_arm64.deb`.
    """
    return re.split("[_=]", name.rsplit("/", 1)[-1], maxsplit=1)[0]


@dataclass(frozen=True)
class RemovePackages(SystemStep):
    """An action that removes packages; `versions` are the installed ones."""

    versions: tuple[tuple[str, str], ...]
    seconds = DOWNLOAD_SECONDS

    def describe(self) -> str:
        """Return `remove libqnn1, qnn-tools`."""
        return "remove " + ", ".join(name for name, _ in self.versions)

    def commands(self) -> tuple[Command, ...]:
        """Return the removal without a purge, so that settings stay."""
        return (argv(*_APT, "remove", "--", *(name for name, _ in self.versions)),)

    def undo(self) -> tuple[Command, ...]:
        """Return the installation of the same versions, if the sources still have them."""
        exact = (f"{name}={version}" for name, version in self.versions)
        return (argv(*_APT, "--no-install-recommends", "install", "--", *exact),)


@dataclass(frozen=True)
class RepairPackages(SystemStep):
    """An action that lets dpkg finish an interrupted installation."""

    names: tuple[str, ...]
    seconds = DOWNLOAD_SECONDS
    no_undo = "fleet does not restore a half-configured package"

    def describe(self) -> str:
        """Return `finish the interrupted configuration of X`."""
        return f"finish the interrupted configuration of {', '.join(self.names)}"

    def commands(self) -> tuple[Command, ...]:
        """Return dpkg's own repair."""
        quiet = ("env", "DEBIAN_FRONTEND=noninteractive")
        return (argv(*quiet, "dpkg", "--configure", "-a", "--force-confold"),)
