"""`system:` of a playbook → SystemSpec: files are read, keys compared with fingerprints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.config.problems import Problems
from fleet.config.system_file import LOGIN, FileBody, RepositoryBody, SystemBody
from fleet.config.yamlpos import Document, Keys
from fleet.model.errors import Position, reason
from fleet.model.extras import loaded
from fleet.model.files import FileRef, file_ref
from fleet.model.system import (
    LOADER_CONF,
    UDEV_RULES,
    Repository,
    SystemSpec,
    WantedFile,
    WantedUnit,
)

MAX_FILE_BYTES = 1 << 20

Resolve = Callable[[str, Keys], Path]


def system_spec(
    body: SystemBody | None, fastrpc: str, document: Document, problems: Problems, path: Resolve
) -> SystemSpec:
    """The spec of a playbook; what is wrong goes to `problems` with its place."""
    loader = _Loader(document, problems, path)
    if body is None:
        return SystemSpec(fastrpc=fastrpc)
    return loader.spec(body, fastrpc)


class _Loader:
    def __init__(self, document: Document, problems: Problems, path: Resolve) -> None:
        self._document, self._problems, self._path = document, problems, path

    def spec(self, body: SystemBody, fastrpc: str) -> SystemSpec:
        self._twice(body)
        return SystemSpec(
            fastrpc=fastrpc,
            repositories=tuple(
                self._repository(repository, ("system", "repositories", index))
                for index, repository in enumerate(body.repositories)
            ),
            packages=tuple(dict.fromkeys(body.packages)),
            debs=self._debs(body.debs),
            groups=tuple(dict.fromkeys(body.groups)),
            members={
                group: tuple("" if user == LOGIN else user for user in users)
                for group, users in body.members.items()
            },
            rules={name: _text(text) for name, text in body.udev.items()},
            units=tuple(WantedUnit(unit.name, unit.enabled, unit.running) for unit in body.units),
            files=tuple(
                self._file(file, ("system", "files", index))
                for index, file in enumerate(body.files)
            ),
            library_paths={name: tuple(paths) for name, paths in body.library_paths.items()},
            distribution_qnn=body.distribution_qnn,
            reboot=body.reboot,
        )

    def _twice(self, body: SystemBody) -> None:
        """Two wishes for one path would undo each other on every deploy."""
        seen = {UDEV_RULES + name for name in body.udev} | {
            LOADER_CONF + name for name in body.library_paths
        }
        for index, file in enumerate(body.files):
            if file.path in seen:
                at = self._document.value(("system", "files", index, "path"))
                self._problems.add(f"{file.path} is listed twice", at, "remove one of the two")
            seen.add(file.path)

    def _read(self, text: str, keys: Keys, what: str) -> bytes:
        path, at = self._path(text, keys), self._document.value(keys)
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self._problems.add(
                f"cannot read the {what} {path}: {reason(error)}",
                at,
                f"correct the path; ls {path.parent} (shows what is there)",
            )
            return b""
        if len(data) > MAX_FILE_BYTES:
            self._problems.add(
                f"the {what} {path} is larger than 1 MB", at, "put large files into the bundle"
            )
        return data

    def _repository(self, body: RepositoryBody, keys: Keys) -> Repository:
        wanted = body.fingerprint.replace(" ", "").upper()
        at = self._document.value((*keys, "fingerprint"))
        data = self._read(body.key, (*keys, "key"), "key file")
        return Repository(
            name=body.name,
            uri=body.uri,
            suite=body.suite,
            components=tuple(body.components),
            key=self._key(data, wanted, at) if data else b"",
            fingerprint=wanted,
        )

    def _key(self, data: bytes, wanted: str, at: Position) -> bytes:
        """The one certificate with that fingerprint, in ASCII armour."""
        pysequoia = loaded("pysequoia", "openpgp", "the key of a package repository")
        try:
            certs = pysequoia.Cert.split_bytes(data)
        except Exception as error:  # noqa: BLE001 - the library raises bare exceptions
            why = str(error).splitlines()[0]
            self._problems.add(f"the file is not an OpenPGP key: {why}", at, "gpg --show-keys FILE")
            return b""
        found = {cert.fingerprint.upper(): cert for cert in certs}
        if wanted not in found:
            there = ", ".join(found) or "no key"
            self._problems.add(
                f"the key file of the package repository contains the key {there}, but "
                f"`fingerprint:` is {wanted}",
                at,
                "look up the fingerprint that the owner of the repository publishes; then "
                "correct `fingerprint:`, or get the right key file",
            )
            return b""
        return str(found[wanted]).encode()

    def _debs(self, text: str | None) -> tuple[FileRef, ...]:
        if text is None:
            return ()
        keys: Keys = ("system", "debs")
        folder, at = self._path(text, keys), self._document.value(keys)
        files = sorted(folder.glob("*.deb")) if folder.is_dir() else []
        if not files:
            self._problems.add(f"the folder {folder} contains no .deb file", at, f"ls {folder}")
        for deb in files:
            if deb.name.count("_") != 2:
                self._problems.add(
                    f"the file name {deb.name} does not have the form name_version_arch.deb",
                    at,
                    f"dpkg-name {deb}",
                )
        return tuple(file_ref(deb.resolve(), deb.name) for deb in files)

    def _file(self, body: FileBody, keys: Keys) -> WantedFile:
        content = b""
        if (body.content is None) == (body.source is None):
            self._problems.add(
                f"the file {body.path} needs either content or source",
                self._document.value(keys),
                "write `content: |` with text, or `source: FILE`",
            )
        elif body.content is not None:
            content = _text(body.content).encode()
        elif body.source is not None:
            content = self._read(body.source, (*keys, "source"), "file")
        mode = body.mode.rjust(4, "0")
        return WantedFile(body.path, content, mode, body.owner, body.group)


def _text(text: str) -> str:
    """With a line end: udev and ld.so.conf do not read a last line without one everywhere."""
    return text if text.endswith("\n") else text + "\n"
