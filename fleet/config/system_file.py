"""The shape of `fastrpc:` and `system:` in a playbook file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from fleet.config.fields import FilePath, Matches, Strict
from fleet.data import load

LOGIN = "@login"
_PACKAGINGS = tuple(
    name for name, row in load("fastrpc").items() if isinstance(row, dict) and row["packages"]
)
FASTRPC = ("off", "auto", *_PACKAGINGS)

PackageName = Annotated[
    str,
    Matches(
        r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?",
        "package name",
        "write NAME or NAME=VERSION",
    ),
]
GroupName = Annotated[
    str,
    Matches(r"[a-z_][a-z0-9_-]{0,30}", "group name", "use 1 to 31 characters: a-z, 0-9, _ and -"),
]
Member = Annotated[
    str,
    Matches(
        f"{LOGIN}|[a-z_][a-z0-9_.-]{{0,30}}",
        "user name",
        f"write a login name, or {LOGIN} for the user of the ssh login",
    ),
]
RuleName = Annotated[
    str,
    Matches(
        r"[0-9A-Za-z][A-Za-z0-9._-]{0,80}\.rules",
        "name of a udev rule file",
        "write it like 70-npu.rules: a file name without a folder",
    ),
]
LoaderName = Annotated[
    str,
    Matches(
        r"[0-9A-Za-z][A-Za-z0-9._-]{0,80}\.conf",
        "name of an ld.so.conf.d file",
        "write it like npu.conf: a file name without a folder",
    ),
]
UnitName = Annotated[
    str,
    Matches(
        r"[A-Za-z0-9][A-Za-z0-9@._:-]{0,120}\.(service|socket|timer|target|path|mount)",
        "systemd unit",
        "write the name with its suffix: cdsprpcd.service",
    ),
]
DevicePath = Annotated[
    str,
    Matches(
        r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f]+)+",
        "path on the device",
        "write an absolute path without `..` and without a slash at its end",
    ),
]
Mode = Annotated[
    str,
    Matches(
        "0?[0-7][0-7][4-7]",
        "file mode that the deploy user may read",
        'write it in quotes, like "0644"; the deploy user must be able to read the file, so '
        "that fleet can compare it",
    ),
]
Fingerprint = Annotated[
    str,
    Matches(
        r"[0-9A-Fa-f ]{40,80}",
        "OpenPGP fingerprint",
        "write all 40 (or 64) hex digits, as `gpg --show-keys FILE` prints them",
    ),
]
RepositoryName = Annotated[
    str,
    Matches(r"[a-z0-9][a-z0-9-]{0,40}", "repository name", "use lower-case letters, digits and -"),
]
Uri = Annotated[
    str,
    Matches(
        r"(https?|file|copy|cdrom|mirror\+https?)://?[^\s\x00-\x1f]+",
        "repository address",
        "write it like https://HOST/PATH, without a password",
    ),
]
SuiteName = Annotated[
    str, Matches(r"[A-Za-z0-9./][A-Za-z0-9./~+-]*", "suite", "write it like noble, or ./")
]
Fastrpc = Annotated[
    Literal[FASTRPC],  # type: ignore[valid-type]
    # YAML reads a bare `off` as false.
    BeforeValidator(lambda value: "off" if value is False else value),
    WithJsonSchema({"enum": [*FASTRPC, False]}),
]


class RepositoryBody(Strict):
    """An apt repository with the key that signs it."""

    name: RepositoryName = Field(description="Name of the repository, for its files on the device.")
    uri: Uri = Field(description="Address; file:/PATH for a folder on the device.")
    suite: SuiteName = Field(description="Suite, like noble; or a path that ends with a slash.")
    components: list[SuiteName] = Field(
        default_factory=list,
        description="Components, like main; leave it out if the suite is a path.",
    )
    key: FilePath = Field(description="OpenPGP key file, relative to the playbook.")
    fingerprint: Fingerprint = Field(description="Fingerprint that the key must have.")


class FileBody(Strict):
    """A file on the device: its content here, or a file beside the playbook."""

    path: DevicePath = Field(description="Path on the device.")
    content: str | None = Field(
        default=None, description="Text of the file. Use either content or source."
    )
    source: FilePath | None = Field(default=None, description="File, relative to the playbook.")
    mode: Mode = Field(default="0644", description='Mode in quotes, like "0644".')
    owner: Member = Field(default="root", description="Owner.")
    group: GroupName = Field(default="root", description="Group.")


class UnitBody(Strict):
    """A systemd unit. What is not written stays as it is."""

    name: UnitName = Field(description="Name of the unit with its suffix, like cdsprpcd.service.")
    enabled: bool | None = Field(default=None, description="Start the unit at boot.")
    running: bool | None = Field(default=None, description="Run the unit now.")


class SystemBody(Strict):
    """What shall be true on the system below the releases."""

    repositories: list[RepositoryBody] = Field(
        default_factory=list, description="apt repositories, each with key and fingerprint."
    )
    packages: list[PackageName] = Field(
        default_factory=list, description="Packages, as name or name=version."
    )
    debs: FilePath | None = Field(
        default=None, description="Folder of .deb files for boards without internet."
    )
    groups: list[GroupName] = Field(default_factory=list, description="System groups.")
    members: dict[GroupName, list[Member]] = Field(
        default_factory=dict, description=f"Group → users; {LOGIN} is the user of the login."
    )
    udev: dict[RuleName, str] = Field(
        default_factory=dict, description="udev rule file → its text."
    )
    units: list[UnitBody] = Field(default_factory=list, description="systemd units.")
    files: list[FileBody] = Field(default_factory=list, description="Files.")
    library_paths: dict[LoaderName, list[DevicePath]] = Field(
        default_factory=dict, description="ld.so.conf.d file → folders of libraries."
    )
    distribution_qnn: Literal["shadow", "remove"] = Field(
        default="shadow",
        description="QNN packages of the distribution: `shadow` (the release hides them) or "
        "`remove`.",
    )
    reboot: bool = Field(default=False, description="Reboot after changes; needs --allow-reboot.")
