"""Checks of the bundle: context binaries and Genie configurations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Context, Seen, Subject, subjects
from fleet.model.diagnosis import Check
from fleet.model.files import human_bytes
from fleet.model.runtime import version_key

# SDK documentation: 4 GB of address space, 3.75 GB usable, below 3 GB for a single binary.
_ONE_BINARY = 3 << 30
# Loaded on an IQ-9075: 6.5 GB; refused: 7.0 GB (eivholt/qai-nemotron). No other data point.
_ALL_BINARIES = 6_700_000_000
_CONTEXT_KEYS = ("ctx-bins",)
_STATUS = "fleet status --json"
_BUNDLE = Maker("bundle", "bundle")
_CONFIG = Maker("config", "bundle")


def contexts(sample: Seen) -> Iterator[Check]:
    """Context binaries are whole, for this chip, not newer than the runtime, and not too large."""
    for subject in subjects(sample):
        yield from _of_release(subject)
        named = set(_named([_json(text or "null")[0] for text in subject.configs.values()]))
        for context in subject.contexts:
            yield from _context(context, subject, sample, named)
        yield from _sizes(subject)


def _of_release(subject: Subject) -> Iterator[Check]:
    if subject.release is None:
        return
    changed = [n for n in (*subject.damaged, *subject.strange) if n.endswith(".bin")]
    missing = [n for n in subject.missing if n.endswith(".bin")]
    for name in changed:
        size, whole = subject.release.sizes.get(name, 0), subject.release.files[name][1]
        word = "empty" if not size else "truncated" if size < whole else "corrupt"
        output = f"{name} is damaged: {size} of {whole} bytes, or not the content that was deployed"
        yield _BUNDLE.bad(f"{name} is {word}", {"bundle.contexts": word}, _STATUS, output)
    for name in missing:
        yield _BUNDLE.bad(f"{name} is missing", {"bundle.files": "missing"}, _STATUS, name)
    if not changed and not missing:
        yield _BUNDLE.ok(f"{subject.label}: all files are as deployed", {"bundle.contexts": "ok"})


def _context(context: Context, subject: Subject, sample: Seen, named: set[str]) -> Iterator[Check]:
    name, command = PurePosixPath(context.path).name, f"ls -l {context.path}"
    size = f"{context.size} bytes"
    if context.size == 0:
        yield _BUNDLE.bad(f"{name} is empty", {"bundle.contexts": "empty"}, command, size)
    elif context.build:
        yield from _marks(context, name, subject, sample.facts.soc.hexagon_arch)
    else:
        text = (
            f"{name} is truncated, damaged, or not a context binary: it contains no QAIRT build id"
        )
        if name in {PurePosixPath(name).name for name in named}:
            yield _BUNDLE.bad(text, {"bundle.contexts": "corrupt"}, command, size)
        else:
            yield _BUNDLE.warn(text, {}, command, size)


def _marks(context: Context, name: str, subject: Subject, arch: str | None) -> Iterator[Check]:
    """Yield the checks of the QAIRT version and the Hexagon arch that a context binary states."""
    command = f"grep -aoE 'v2[.][0-9.]+|soc_type=[^;]+;arch=[0-9]+' {context.path} | head -4"
    shown = f"{context.build} {context.soc} {context.arch}".strip()
    newer = _newer(context.build, subject.build)
    text = (
        f"{name} was compiled with QAIRT {context.build}; the runtime is "
        f"{subject.build or 'unknown'}"
    )
    if newer:
        yield _BUNDLE.bad(text, {"bundle.version": "newer"}, command, shown)
    else:
        word = "unknown" if newer is None else "ok"
        yield _BUNDLE.ok(text, {"bundle.version": word}, command, shown)
    if not context.arch or not arch or subject.emulator:
        return
    word = _arch_word(context.arch, arch)
    text, facts = (
        (f"{name} was compiled for Hexagon {context.arch}; the chip is {arch}"),
        {"bundle.arch": word},
    )
    if word == "newer":
        yield _BUNDLE.bad(text, facts, command, shown)
    elif word == "older":
        yield _BUNDLE.warn(text, facts, command, shown)
    else:
        yield _BUNDLE.ok(text, facts, command, shown)


def _json(text: str) -> tuple[Any, str]:
    """Return (data, ""), or (None, reason) for invalid JSON."""
    try:
        return json.loads(text), ""
    except (ValueError, RecursionError) as error:
        return None, str(error)


def _newer(binary: str, runtime: str) -> bool | None:
    """Return True if a newer QAIRT release compiled the binary than that of the runtime.

    Returns None if one of the two is unknown.
    """
    try:
        first, second = (
            version_key(".".join(version.lstrip("v").split(".")[:2]))
            for version in (binary, runtime)
        )
    except ValueError:
        return None
    return first > second if runtime else None


def _arch_word(binary: str, chip: str) -> str:
    left, right = int(binary.lstrip("v") or 0), int(chip.lstrip("v") or 0)
    return "newer" if left > right else "older" if left < right else "ok"


def _sizes(subject: Subject) -> Iterator[Check]:
    sizes = [context.size for context in subject.contexts]
    if subject.release is not None:
        sizes = [size for name, (_, size) in subject.release.files.items() if name.endswith(".bin")]
    if subject.emulator or not sizes:
        return
    if max(sizes) > _ONE_BINARY or sum(sizes) > _ALL_BINARIES:
        output = (
            f"the largest has {human_bytes(max(sizes))}, all together have "
            f"{human_bytes(sum(sizes))}"
        )
        text = f"the context binaries may be larger than a DSP can map: {output}"
        yield _BUNDLE.warn(text, {"bundle.size": "over-budget"}, f"du -ab {subject.root}", output)


def configs(sample: Seen) -> Iterator[Check]:
    """Genie configurations of set-ups by hand are JSON, and their files are there."""
    for subject in subjects(sample):
        for path, text in subject.configs.items():
            data, why = _json(text or "null")
            # Other JSON files of the folder are not for Genie.
            if why and text and ("dialog" in text or "genie" in PurePosixPath(path).name):
                name = PurePosixPath(path).name
                syntax = {"bundle.config": "syntax"}
                yield _CONFIG.bad(f"{name} is not JSON: {why}", syntax, f"cat {path}", text[:200])
            elif isinstance(data, dict) and "dialog" in data:
                yield _config(path, data, subject)


def _config(path: str, data: dict[str, Any], subject: Subject) -> Check:
    name, folder, command = PurePosixPath(path).name, PurePosixPath(path).parent, f"cat {path}"
    if not isinstance(data["dialog"], dict) or "type" not in data["dialog"]:
        facts = {"bundle.config": "schema"}
        output = str(data["dialog"])[:200]
        return _CONFIG.bad(
            f"the section `dialog` of {name} has no key `type`", facts, command, output
        )
    lost = [file for file in _named(data) if not _there(file, folder, subject.files)]
    if lost:
        text = f"{name} refers to the file {lost[0]}, which does not exist"
        facts = {"bundle.config": "paths", "bundle.files": "missing"}
        return _CONFIG.bad(text, facts, command, f"missing: {', '.join(lost)}")
    return _CONFIG.ok(f"all files that {name} refers to exist", {"bundle.config": "ok"})


def _there(file: str, folder: PurePosixPath, files: frozenset[str]) -> bool:
    """Return True if the file exists.

    A relative path counts from the folder of the run: the folder of the configuration or its
    parent.
    """
    if file.startswith("/"):
        return file in files
    return any(str(base / file) in files for base in (folder, folder.parent))


def _named(value: object) -> Iterator[str]:
    """Yield the files that a Genie configuration names: tokenizer, context binaries, extensions."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"path", "extensions"} and isinstance(inner, str):
                yield inner
            elif key in _CONTEXT_KEYS and isinstance(inner, list):
                yield from (item for item in inner if isinstance(item, str))
            else:
                yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)
