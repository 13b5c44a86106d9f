"""The system of a device below the releases: its desired and its observed state.

It covers packages, groups, device rules, units and files. Values that were not requested or not
answered are absent from a mapping, and nothing is derived from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.model.files import FileRef

UDEV_RULES = "/etc/udev/rules.d/"
LOADER_CONF = "/etc/ld.so.conf.d/"
SHADOW, REMOVE = "shadow", "remove"


@dataclass(frozen=True)
class Repository:
    """An apt repository. `key` is an OpenPGP certificate with `fingerprint` (hex, capitals)."""

    name: str
    uri: str
    suite: str
    components: tuple[str, ...]
    key: bytes
    fingerprint: str


@dataclass(frozen=True)
class WantedFile:
    """A file with content, mode (octal text), owner and group."""

    path: str
    content: bytes
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class WantedUnit:
    """A systemd unit. None leaves the setting unchanged."""

    name: str
    enabled: bool | None = None
    running: bool | None = None


@dataclass(frozen=True)
class SystemSpec:
    """The desired state of the system in a playbook.

    `fastrpc` is off, auto, or the name of a packaging in data/fastrpc.yaml. `packages` are names,
    or `name=version`. `debs` are local .deb files (name_version_arch.deb). `members` maps a group
    to users; "" is the deploy user. `rules` maps the name of a udev rule file to its text,
    `library_paths` the name of an ld.so.conf.d file to folders. `distribution_qnn`: QNN packages of
    the distribution are shadowed by the release's own search paths, or removed. `reboot`: the board
    is rebooted after changes.
    """

    fastrpc: str = "off"
    repositories: tuple[Repository, ...] = ()
    packages: tuple[str, ...] = ()
    debs: tuple[FileRef, ...] = ()
    groups: tuple[str, ...] = ()
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    units: tuple[WantedUnit, ...] = ()
    files: tuple[WantedFile, ...] = ()
    library_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distribution_qnn: str = SHADOW
    reboot: bool = False

    @property
    def empty(self) -> bool:
        """True if nothing is requested, so that nothing has to be probed."""
        return self == SystemSpec()


@dataclass(frozen=True)
class PackageSeen:
    """A package: its installed version and the available version, None if there is none.

    `whole` is False if dpkg began to install it and did not finish.
    """

    installed: str | None = None
    candidate: str | None = None
    whole: bool = True


@dataclass(frozen=True)
class FileSeen:
    """A path: `kind` is absent, file, link, folder or other. `content` is None if not readable."""

    kind: str = "absent"
    mode: str = ""
    owner: str = ""
    group: str = ""
    content: bytes | None = None
    target: str = ""


@dataclass(frozen=True)
class UnitSeen:
    """A unit in systemd's words: loaded / not-found, active / inactive, enabled / disabled."""

    load: str
    active: str
    enabled: str


@dataclass(frozen=True)
class RuleSeen:
    """A udev rule file with the lines that mention a FastRPC node or a dma_heap."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class SystemState:
    """The observed state. `groups` maps a name to its members, None if there is no such group.

    `manager` is apt, opkg or None. `lists` is True if apt knows the content of its sources.
    `sources` are the active lines. `skels` are libQnn skels in the DSP's default folders, `on_path`
    QNN files on the login's own search paths, `trees` QAIRT trees under /opt. `reboot_required` is
    the system's own flag. `tried` are the events (add, change) by which fleet applied the device
    rules since this boot and since the last change of rules or nodes. `acls` are heaps with an
    access list. A package of a foreign architecture has the name `name:architecture`.
    """

    manager: str | None = None
    lists: bool | None = None
    sources: tuple[str, ...] = ()
    packages: Mapping[str, PackageSeen] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    files: Mapping[str, FileSeen] = field(default_factory=dict)
    units: Mapping[str, UnitSeen] = field(default_factory=dict)
    rules: tuple[RuleSeen, ...] = ()
    tools: frozenset[str] = frozenset()
    skels: tuple[str, ...] = ()
    on_path: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    reboot_required: bool = False
    tried: frozenset[str] = frozenset()
    acls: frozenset[str] = frozenset()

    def installed(self, name: str) -> str | None:
        """Return the version of an installed package, None if it is not installed or not probed."""
        return self.packages.get(name, PackageSeen()).installed

    def candidate(self, name: str) -> str | None:
        """Return the version that the package manager offers, None if it offers none."""
        return self.packages.get(name, PackageSeen()).candidate
