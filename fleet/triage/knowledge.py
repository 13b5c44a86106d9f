"""The knowledge of the doctor: the cause files, compiled once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from fleet.model.cause import Cause, Signature
from fleet.model.errors import FleetError, InputError
from fleet.triage.grammar import expanded
from fleet.triage.matcher import Matcher

# The cause files are stored in one index too: `python -m fleet.triage.knowledge` writes it.
#
# Reading 75 YAML files and finding the literals of 1,300 patterns takes most of a short command.
# The index is used only if it was made from the present files.

NAME = "causes.index.json"


def digest(paths: Iterable[Path]) -> str:
    """Return a digest of names and contents, so that any change of a file is noticed."""
    whole, size = 0, 0
    for path in sorted(paths):
        data = path.name.encode() + b"\0" + path.read_bytes() + b"\0"
        whole, size = crc32(data, whole), size + len(data)
    return f"{whole:08x}-{size}"


def read(paths: Iterable[Path]) -> dict[str, Any] | None:
    """Return the index for exactly these files; None if it was made from others."""
    with as_file(files("fleet") / "data" / NAME) as path:
        try:
            lines = path.read_text("utf-8").splitlines()
            head = json.loads(lines[0])
        except (OSError, ValueError, IndexError):
            return None
    if head["digest"] != digest(paths):
        return None
    head["causes"] = [msgspec.json.decode(line, type=Cause) for line in lines[1:]]
    return dict(head)


def write(paths: Iterable[Path], causes: Iterable[Cause], head: Mapping[str, Any]) -> None:
    """Write the index with one cause a line, so that a change of one cause changes one line."""
    rows = [{"digest": digest(paths), **head}, *causes]
    with as_file(files("fleet") / "data" / NAME) as path:
        path.write_bytes(b"\n".join((*map(msgspec.json.encode, rows), b"")))


PARTS = ("match", "unless", "needs")
TABLES = (
    "benign",
    "success",
    "platform_words",
    "actor_words",
    "context_words",
    "next_steps",
    "sentences",
    "families",
    "stages",
    "error_codes",
)


@dataclass(frozen=True)
class Known:
    """The causes and their patterns. `patterns[i]` of the matcher belongs to `owners[i]`.

    An owner is a cause, its signature and the part of the signature: match, unless or needs.
    `against` has the patterns that disprove causes, and `opposed` their causes.
    """

    causes: dict[str, Cause]
    owners: tuple[tuple[Cause, Signature, str], ...]
    signatures: tuple[int, ...]  # the places of the owners with the part `match`
    matcher: Matcher
    against: Matcher
    opposed: tuple[Cause, ...]
    benign: Matcher
    success: Matcher
    needs: tuple[str, ...]
    weak: frozenset[int]
    lasting: frozenset[str]
    doubts: Matcher
    worries: Matcher
    failure_words: Matcher
    platforms: tuple[tuple[str, Matcher], ...]
    actors: tuple[tuple[str, Matcher], ...]
    cures: dict[str, dict[str, Any]]
    contexts: dict[str, Matcher]
    steps: tuple[dict[str, str], ...]
    stepping: Matcher
    sentences: tuple[str, ...]
    saying: Matcher
    subjects: Matcher
    symptoms: Matcher
    families: dict[tuple[int, int], str]
    unsure: frozenset[tuple[int, int]]
    stages: tuple[dict[str, Any], ...]
    staged: Matcher
    codes: dict[str, Any]


@cache
def knowledge(folder: Path | None = None) -> Known:
    """Return the knowledge in fleet/data/causes or another folder.

    Raises InputError for a bad file.
    """
    paths = _paths(folder)
    raw = read([*paths, *_tables()]) if folder is None else None
    if raw is not None:
        return _known(raw["causes"], raw["tables"], raw["words"])
    return _known(_parsed(paths), _loaded(), None)


def write_index() -> None:
    """Write the index that `knowledge` reads instead of the files, while they are unchanged."""
    paths = _paths(None)
    causes = _parsed(paths)
    known = _known(causes, _loaded(), None)
    head = {"tables": _loaded(), "words": [matcher.words for matcher in _matchers(known)]}
    write([*paths, *_tables()], causes, head)


def _paths(folder: Path | None) -> list[Path]:
    with as_file(files("fleet") / "data" / "causes") as shipped:
        paths = sorted((folder or shipped).glob("*.yaml"))
    if not paths:
        raise InputError(
            f"{folder or shipped} contains no cause files",
            hint="pip install --force-reinstall npu-fleet",
        )
    return paths


def _tables() -> list[Path]:
    with as_file(files("fleet") / "data") as data:
        return [data / f"{name}.yaml" for name in TABLES]


def _parsed(paths: Sequence[Path]) -> Sequence[Cause]:
    from fleet.config.cause_file import load_causes  # noqa: PLC0415 - yaml

    return load_causes(paths)


def _loaded() -> dict[str, Any]:
    from fleet.data import load  # noqa: PLC0415 - yaml

    return {name: load(name) for name in TABLES}


def _known(
    causes: Sequence[Cause], tables: dict[str, Any], words: list[list[list[list[str]]]] | None
) -> Known:
    owners = _owners(causes)
    opposed = tuple(cause for cause in causes for _ in cause.against)
    given = iter(words) if words is not None else None

    def matcher(patterns: Sequence[str], names: Sequence[str] = ()) -> Matcher:
        return Matcher(patterns, names=names, words=next(given) if given else None)

    success, families = tables["success"], tables["families"]
    return Known(
        causes={cause.id: cause for cause in causes},
        owners=owners,
        signatures=tuple(at for at, (_, _, part) in enumerate(owners) if part == "match"),
        matcher=matcher(
            [expanded(getattr(signature, part)) for _, signature, part in owners],
            [f"cause {cause.id}" for cause, _, _ in owners],
        ),
        against=matcher(
            [expanded(pattern) for cause in causes for pattern in cause.against],
            [f"cause {cause.id}" for cause in opposed],
        ),
        opposed=opposed,
        benign=matcher([row["match"] for row in tables["benign"]["patterns"]]),
        success=matcher([row["match"] for row in success["patterns"]]),
        needs=tuple(row.get("needs", "") for row in success["patterns"]),
        weak=frozenset(at for at, row in enumerate(success["patterns"]) if row.get("weak")),
        lasting=frozenset(success["lasting"]),
        doubts=matcher(success["doubts"]),
        worries=matcher(success["worries"]),
        failure_words=matcher(success["failure_words"]),
        platforms=tuple(
            (name, matcher(patterns)) for name, patterns in tables["platform_words"].items()
        ),
        actors=tuple((name, matcher(row["words"])) for name, row in tables["actor_words"].items()),
        cures=tables["actor_words"],
        contexts={name: matcher(patterns) for name, patterns in tables["context_words"].items()},
        steps=tuple(tables["next_steps"]["steps"]),
        stepping=matcher([row["when"] for row in tables["next_steps"]["steps"]]),
        sentences=tuple(row["says"] for row in tables["sentences"]["sentences"]),
        saying=matcher([expanded(row["match"]) for row in tables["sentences"]["sentences"]]),
        subjects=matcher([row["match"] for row in families["subjects"]]),
        symptoms=matcher([row["match"] for row in families["symptoms"]]),
        families=_table(families),
        unsure=_unsure(families),
        stages=tuple(tables["stages"]["stages"]),
        codes=_codes(tables["error_codes"]),
        staged=matcher([stage["words"] for stage in tables["stages"]["stages"]]),
    )


def _owners(causes: Sequence[Cause]) -> tuple[tuple[Cause, Signature, str], ...]:
    return tuple(
        (cause, signature, part)
        for cause in causes
        for signature in cause.signatures
        for part in PARTS
        if getattr(signature, part)
    )


def _codes(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of error codes with numbers as keys, which JSON stores as text."""
    return {
        name: {int(key): row for key, row in rows.items()} if isinstance(rows, dict) else rows
        for name, rows in tables.items()
    }


def _table(families: dict[str, Any]) -> dict[tuple[int, int], str]:
    table = families["table"]
    return {cell: table[about].get(wrong, "") for cell, about, wrong in _cells(families)}


def _unsure(families: dict[str, Any]) -> frozenset[tuple[int, int]]:
    unsure = families["unsure"]
    return frozenset(
        cell
        for cell, subject, symptom in _cells(families)
        if subject in unsure["subjects"] or symptom in unsure["symptoms"]
    )


def _cells(families: dict[str, Any]) -> list[tuple[tuple[int, int], str, str]]:
    """Return each pair of a subject and a symptom: their numbers and their ids."""
    return [
        ((about, wrong), subject["id"], symptom["id"])
        for about, subject in enumerate(families["subjects"])
        for wrong, symptom in enumerate(families["symptoms"])
    ]


def _matchers(known: Known) -> list[Matcher]:
    """Return the matchers in the order in which `_known` makes them."""
    return [
        known.matcher, known.against, known.benign, known.success, known.doubts, known.worries,
        known.failure_words,
        *(matcher for _, matcher in (*known.platforms, *known.actors)), *known.contexts.values(),
        known.stepping, known.saying, known.subjects, known.symptoms, known.staged,
    ]  # fmt: skip


if __name__ == "__main__":
    try:
        write_index()
    except FleetError as error:
        sys.exit(f"error: {error}\n  try: {error.hint}")
