"""Everything the doctor knows: the cause files, compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from fleet.config.cause_file import load_causes
from fleet.data import load
from fleet.model.cause import Cause, Signature
from fleet.model.errors import InputError
from fleet.triage.matcher import Matcher


@dataclass(frozen=True)
class Known:
    """Causes and their patterns. `patterns[i]` of the matcher belongs to `owners[i]`.

    An owner is the cause, its signature and the part of it: match, unless or needs.
    """

    causes: dict[str, Cause]
    owners: tuple[tuple[Cause, Signature, str], ...]
    matcher: Matcher
    benign: Matcher
    success: Matcher
    failure_words: Matcher
    platforms: tuple[tuple[str, Matcher], ...]


@cache
def knowledge(folder: Path | None = None) -> Known:
    """What is in fleet/data/causes, or in another folder. InputError for a mistake there."""
    with as_file(files("fleet.data") / "causes") as shipped:
        paths = sorted((folder or shipped).glob("*.yaml"))
        if not paths:
            raise InputError(f"{folder or shipped} has no cause files")
        causes = load_causes(paths)
    success = load("success")
    owners = tuple(
        (cause, signature, part)
        for cause in causes
        for signature in cause.signatures
        for part in ("match", "unless", "needs")
        if getattr(signature, part)
    )
    return Known(
        causes={one.id: one for one in causes},
        owners=owners,
        matcher=Matcher(
            [getattr(signature, part) for _, signature, part in owners],
            names=[f"cause {cause.id}" for cause, _, _ in owners],
        ),
        benign=Matcher([one["match"] for one in load("benign")["patterns"]]),
        success=Matcher([row["match"] for row in success["patterns"]]),
        failure_words=Matcher(success["failure_words"]),
        platforms=tuple(
            (name, Matcher(patterns)) for name, patterns in load("platform_words").items()
        ),
    )
