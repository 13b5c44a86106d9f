"""The archive for a maintainer: all useful facts, without secrets and names."""

from __future__ import annotations

import io
import platform
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fleet.doctor.contents import PARTS, kept
from fleet.doctor.redaction import Redactor
from fleet.model.deadline import utc_text
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.text import harmless
from fleet.model.version import VERSION


def doctor_members(diagnoses: Sequence[Diagnosis]) -> dict[str, str]:
    """Return the files of the archive by name: the diagnoses as JSON, and versions of fleet and
    host.
    """
    own = {pair for diagnosis in diagnoses for pair in diagnosis.secrets}
    redactor = Redactor([diagnosis.target for diagnosis in diagnoses], sorted(own))
    host = {
        "fleet": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "time": utc_text(),
    }
    members = {"host.json": redactor.json(host)}
    for number, diagnosis in enumerate(diagnoses, 1):
        members[f"device-{number}.json"] = redactor.json(to_plain(diagnosis))
        for part, text in kept(diagnosis.parts, redactor).items():
            members[f"device-{number}/raw/{part}.txt"] = text
    return {f"fleet-doctor/{name}": text for name, text in members.items()}


_CAUSES = 3  # causes of each target, in the text for an assistant
_LINES = 6  # lines of evidence for each cause


def for_assistant(diagnoses: Sequence[Diagnosis]) -> str:
    """Return one redacted text of facts, ranked causes, evidence and cures, ready to paste."""
    own = {pair for diagnosis in diagnoses for pair in diagnosis.secrets}
    redactor = Redactor([diagnosis.target for diagnosis in diagnoses], sorted(own))
    task = "Say which cause fits best, what would prove it, and the next command."
    names = "Names, addresses and unknown words are replaced."
    lines = [f"fleet {VERSION} examined a Qualcomm NPU device or its log. {names} {task}"]
    for diagnosis in diagnoses:
        lines += ["", *_for_assistant(diagnosis)]
    return redactor.text("\n".join(map(harmless, lines)))


def _for_assistant(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"target {diagnosis.target}: {diagnosis.verdict}"
    if diagnosis.error:
        yield f"failed step: {diagnosis.error.get('message', '')}"
    for check in diagnosis.checks:
        facts = ", ".join(f"{name}={word}" for name, word in check.facts.items())
        yield f"fact {check.layer} {check.id} {check.status}: {check.text} ({facts})"
    for place, ranked in enumerate(diagnosis.causes[:_CAUSES], 1):
        yield f"cause {place} {ranked.cause.id}, confidence {ranked.confidence:.2f}: {ranked.title}"
        for row in ranked.evidence[:_LINES]:
            yield f"  for: {row.source} {row.line}: {row.text}"
        for twin in ranked.twins:
            test = f"`{twin.command}`" if twin.command else "the log"
            yield f"  against, if it holds: {twin.reading} ({test} shows {twin.cause})"
        for fix in ranked.fixes:
            yield f"  cure: {fix.title} {fix.command}".rstrip()
        yield f"  check: {ranked.verify}"
        yield f"  about: {' '.join(ranked.explanation.split())}"
    for line in diagnosis.suspects:
        yield f"suspicious line {line.line}: {line.text}"
    yield from (f"means: {text}" for text in diagnosis.understood)
    yield from (f"note: {note}" for note in diagnosis.notes)
    yield from (f"open question: {row.text} {row.command}" for row in diagnosis.questions)


def contents(members: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    """Return (file, size, possible contents) of each member, to show before the archive is
    written.
    """
    for name, text in members.items():
        path = Path(name)
        part = PARTS.get(path.stem) if path.parent.name == "raw" else None
        yield name, str(len(text.encode())), part.about if part else _about(path)


def _about(path: Path) -> str:
    if path.parent.name == "rungs":
        return "what was said on this rung"
    return {
        "host": "versions of fleet and Python",
        "summary": "the result, to be read first",
        "selftest": "the result as data",
    }.get(path.stem, "the diagnosis as data")


def write_archive(path: Path, members: Mapping[str, str], *, hint: str) -> None:
    """Write texts by name as .tar.gz, without control sequences for terminals.

    Raises InputError.
    """
    try:
        with tarfile.open(path, "w:gz") as archive:
            for name, text in members.items():
                data = harmless(text).encode()
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o600
                archive.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise InputError(
            f"fleet cannot write {path}: {error.strerror or error}", hint=hint
        ) from error
