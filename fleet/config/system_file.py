"""The shape of `fastrpc:` and `system:` in a playbook file."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from fleet.config.shape import Body
from fleet.config.values import Before, Doc, FilePath, Pattern, Schema
from fleet.data import load

LOGIN = "@login"
_PACKAGINGS = tuple(
    name for name, row in load("fastrpc").items() if isinstance(row, dict) and row["packages"]
)
FASTRPC = ("off", "auto", *_PACKAGINGS)

PackageName = Annotated[
    str,
    Pattern(
        r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?",
        "package name",
        "write NAME or NAME=VERSION",
    ),
]
GroupName = Annotated[
    str,
    Pattern(r"[a-z_][a-z0-9_-]{0,30}", "group name", "use 1 to 31 characters: a-z, 0-9, _ and -"),
]
Member = Annotated[
    str,
    Pattern(
        f"{LOGIN}|[a-z_][a-z0-9_.-]{{0,30}}",
        "user name",
        f"write a login name, or {LOGIN} for the user of the ssh login",
    ),
]
RuleName = Annotated[
    str,
    Pattern(
        r"[0-9A-Za-z][A-Za-z0-9._-]{0,80}\.rules",
        "name of a udev rule file",
        "write it like 70-npu.rules: a file name without a folder",
    ),
]
LoaderName = Annotated[
    str,
    Pattern(
        r"[0-9A-Za-z][A-Za-z0-9._-]{0,80}\.conf",
        "name of an ld.so.conf.d file",
        "write it like npu.conf: a file name without a folder",
    ),
]
UnitName = Annotated[
    str,
    Pattern(
        r"[A-Za-z0-9][A-Za-z0-9@._:-]{0,120}\.(service|socket|timer|target|path|mount)",
        "systemd unit",
        "write the name with its suffix: cdsprpcd.service",
    ),
]
DevicePath = Annotated[
    str,
    Pattern(
        r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f]+)+",
        "path on the device",
        "write an absolute path without `..` and without a slash at its end",
    ),
]
Mode = Annotated[
    str,
    Pattern(
        "0?[0-7][0-7][4-7]",
        "file mode that the deploy user may read",
        'write it in quotes, like "0644"; the deploy user must be able to read the file, so '
        "that fleet can compare it",
    ),
]
Fingerprint = Annotated[
    str,
    Pattern(
        r"[0-9A-Fa-f ]{40,80}",
        "OpenPGP fingerprint",
        "write all 40 (or 64) hex digits, as `gpg --show-keys FILE` prints them",
    ),
]
RepositoryName = Annotated[
    str,
    Pattern(r"[a-z0-9][a-z0-9-]{0,40}", "repository name", "use lower-case letters, digits and -"),
]
Uri = Annotated[
    str,
    Pattern(
        r"(https?|file|copy|cdrom|mirror\+https?)://?[^\s\x00-\x1f]+",
        "repository address",
        "write it like https://HOST/PATH, without a password",
    ),
]
SuiteName = Annotated[
    str, Pattern(r"[A-Za-z0-9./][A-Za-z0-9./~+-]*", "suite", "write it like noble, or ./")
]
Fastrpc = Annotated[
    Literal[FASTRPC],  # type: ignore[valid-type]
    # YAML reads a bare `off` as false.
    Before(lambda value: "off" if value is False else value),
    Schema({"enum": [*FASTRPC, False]}),
]


class RepositoryBody(Body, frozen=True, kw_only=True):
    """An apt repository with the key that signs it."""

    name: Annotated[RepositoryName, Doc("Name of the repository, for its files on the device.")]
    uri: Annotated[Uri, Doc("Address; file:/PATH for a folder on the device.")]
    suite: Annotated[SuiteName, Doc("Suite, like noble; or a path that ends with a slash.")]
    components: Annotated[
        list[SuiteName], Doc("Components, like main; leave it out if the suite is a path.")
    ] = field(default_factory=list)
    key: Annotated[FilePath, Doc("OpenPGP key file, relative to the playbook.")]
    fingerprint: Annotated[Fingerprint, Doc("Fingerprint that the key must have.")]


class FileBody(Body, frozen=True, kw_only=True):
    """A file on the device, with its content here or in a file next to the playbook."""

    path: Annotated[DevicePath, Doc("Path on the device.")]
    content: Annotated[str | None, Doc("Text of the file. Use either content or source.")] = None
    source: Annotated[FilePath | None, Doc("File, relative to the playbook.")] = None
    mode: Annotated[Mode, Doc('Mode in quotes, like "0644".')] = "0644"
    owner: Annotated[Member, Doc("Owner.")] = "root"
    group: Annotated[GroupName, Doc("Group.")] = "root"


class UnitBody(Body, frozen=True, kw_only=True):
    """A systemd unit. Properties without a value stay unchanged."""

    name: Annotated[UnitName, Doc("Name of the unit with its suffix, like cdsprpcd.service.")]
    enabled: Annotated[bool | None, Doc("Start the unit at boot.")] = None
    running: Annotated[bool | None, Doc("Run the unit now.")] = None


class SystemBody(Body, frozen=True, kw_only=True):
    """The desired state of the system below the releases."""

    repositories: Annotated[
        list[RepositoryBody], Doc("apt repositories, each with key and fingerprint.")
    ] = field(default_factory=list)
    packages: Annotated[list[PackageName], Doc("Packages, as name or name=version.")] = field(
        default_factory=list
    )
    debs: Annotated[FilePath | None, Doc("Folder of .deb files for boards without internet.")] = (
        None
    )
    groups: Annotated[list[GroupName], Doc("System groups.")] = field(default_factory=list)
    members: Annotated[
        dict[GroupName, list[Member]], Doc(f"Group → users; {LOGIN} is the user of the login.")
    ] = field(default_factory=dict)
    udev: Annotated[dict[RuleName, str], Doc("udev rule file → its text.")] = field(
        default_factory=dict
    )
    units: Annotated[list[UnitBody], Doc("systemd units.")] = field(default_factory=list)
    files: Annotated[list[FileBody], Doc("Files.")] = field(default_factory=list)
    library_paths: Annotated[
        dict[LoaderName, list[DevicePath]], Doc("ld.so.conf.d file → folders of libraries.")
    ] = field(default_factory=dict)
    distribution_qnn: Annotated[
        Literal["shadow", "remove"],
        Doc("QNN packages of the distribution: `shadow` (the release hides them) or `remove`."),
    ] = "shadow"
    reboot: Annotated[bool, Doc("Reboot after changes; needs --allow-reboot.")] = False
