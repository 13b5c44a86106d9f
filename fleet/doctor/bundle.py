"""Everything a maintainer asks for, in one archive, without secrets and names."""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import InputError
from fleet.model.text import harmless
from fleet.model.version import VERSION

_GROUP = "[0-9a-f]{1,4}"  # of an IPv6 address
_PATTERNS = (
    (re.compile(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b"), "<address>"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "<mac>"),
    (re.compile(rf"(?<![\w:])(?:{_GROUP}:){{4,7}}{_GROUP}\b", re.IGNORECASE), "<address>"),
    (
        re.compile(rf"(?<![\w:])(?:{_GROUP}:){{1,6}}(?::{_GROUP}){{1,6}}\b", re.IGNORECASE),
        "<address>",
    ),
    (re.compile(r"/(home|Users)/[^/\s:;'\"]+"), r"/\1/<user>"),
    (re.compile(r"SHA256:[A-Za-z0-9+/=]{20,}"), "SHA256:<key>"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "<mail>"),
    (
        re.compile(
            r"((?:pass(?:word|wd|phrase)?|token|secret|api[_-]?key|authorization)\s*[=:]\s*)\S+",
            re.IGNORECASE,
        ),
        r"\1<secret>",
    ),
    (re.compile(r"\b(hf|ghp|gho|sk)[_-][A-Za-z0-9]{16,}\b"), "<token>"),
    (re.compile(r"-----BEGIN [A-Z ]*KEY-----.*?-----END [A-Z ]*KEY-----", re.DOTALL), "<key>"),
)


def redacted(text: str, names: Sequence[str] = ()) -> str:
    """`text` without addresses, users, keys, secrets; each of `names` becomes device-N."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    for number, name in enumerate(names, 1):
        if name:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", f"device-{number}", text)
    return text


def pack(found: Sequence[Diagnosis], path: Path) -> None:
    """Write the archive: a diagnosis as JSON for each target, and what fleet and host are.

    Raises InputError when it cannot be written.
    """
    names = [diagnosis.target for diagnosis in found]
    members = {
        "host.json": json.dumps(
            {
                "fleet": VERSION,
                "python": platform.python_version(),
                "system": platform.platform(),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            indent=2,
        )
    }
    secrets = {}
    for number, diagnosis in enumerate(found, 1):
        members[f"device-{number}.json"] = json.dumps(
            diagnosis.as_dict(), indent=2, ensure_ascii=False
        )
        for part, text in diagnosis.parts.items():
            name = f"device-{number}/raw/{part}.txt"
            members[name], secrets[name] = text, diagnosis.secrets
    told = {
        f"fleet-doctor/{name}": hidden(redacted(text, names), secrets.get(name, ()))
        for name, text in members.items()
    }
    write_archive(path, told, hint="name another file: --bundle FILE")


def hidden(text: str, words: Sequence[str]) -> str:
    """`text` without words that tell this very device: serial numbers, host names."""
    for word in words:
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "<id>", text)
    return text


def write_archive(path: Path, members: Mapping[str, str], *, hint: str) -> None:
    """Texts by name as .tar.gz, without what a terminal would act on. Raises InputError."""
    try:
        with tarfile.open(path, "w:gz") as archive:
            for name, text in members.items():
                data = harmless_json(text).encode()
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o600
                archive.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise InputError(
            f"fleet cannot write {path}: {error.strerror or error}", hint=hint
        ) from error


def harmless_json(text: str) -> str:
    """JSON keeps its line breaks; everything that a terminal would act on goes."""
    return "\n".join(harmless(line) for line in text.split("\n"))
