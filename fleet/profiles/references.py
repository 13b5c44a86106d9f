"""Published records, each with its source: those shipped with fleet, and those of AI Hub.

A fact that the source does not give stays unknown in the record: one run, no conditions, no hashes
of files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any

from fleet.bundles.aihub.models import WHEEL, wheel
from fleet.config.yamlpos import read
from fleet.facts.soc import by_hub_chipset
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.profiles.formats import detect
from fleet.profiles.formats.base import Profile

AIHUB = "aihub:"
_FOLDER = "references"
_KEYS = ("device", "chip", "chipset", "published", "precision", "component", "unit", "context")


def names() -> tuple[str, ...]:
    """Return the names of all reference records that are shipped with fleet."""
    entries = (files("fleet.data") / _FOLDER).iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in entries if file.is_file()))


def plain(name: str) -> list[dict[str, Any]]:
    """Return the plain data of the records. Raises InputError for an unknown name."""
    if name.startswith(AIHUB):
        return [to_plain(record) for record in aihub(name.removeprefix(AIHUB))]
    if name not in names():
        known = ", ".join(f"reference:{each}" for each in (*names(), f"{AIHUB}MODEL/CHIP"))
        raise InputError(
            f"'{name}' is not one of the reference results that fleet knows",
            hint=f"use one of: {known}",
        )
    text = (files("fleet.data") / _FOLDER / f"{name}.json").read_text("utf-8")
    return [json.loads(text)]


def aihub(text: str) -> list[Record]:
    """Return the figures that Qualcomm AI Hub publishes for `MODEL/WORD/...`; "" returns all of
    them.

    They are read from the perf.yaml of each model in the installed wheel of ai-hub-models
    (BSD-3-Clause); nothing of the wheel is imported. A word is a chip, a device, a runtime, a
    precision, a component, a compute unit or a context size. Raises InputError if no figure
    matches.
    """
    model, *words = text.split("/")
    folder, version = wheel()
    tables = {path.parent.name: path for path in sorted(folder.glob("models/*/perf.yaml"))}
    if model and model not in tables:
        near = [name for name in tables if model.lower() in name or name in model.lower()]
        raise InputError(
            f"AI Hub publishes no figures of '{model}' (qai-hub-models {version})",
            hint=f"use one of: {', '.join(near or tables)}",
        )
    chips = _chips(folder)
    wanted = [tables[model]] if model else tables.values()
    figures = [record for path in wanted for record in _records(path, chips, version)]
    for word in filter(None, words):
        left = [record for record in figures if _slug(word) in _choice_words(record).values()]
        if not left:
            there = sorted(
                {each for record in figures for each in _choice_words(record).values() if each}
            )
            raise InputError(
                f"AI Hub publishes no figure of '{text}': nothing is named '{word}'",
                hint=f"after {model or 'the model'}/ write one of: {', '.join(there)}",
            )
        figures = left
    return figures


def _chips(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the known facts about the chip of each device, named like the facts of a record."""
    table = read(folder / "devices_and_chipsets.yaml", InputError).data
    facts = {}
    for device, entry in table["devices"].items():
        chip = table["chipsets"].get(entry["chipset"], {})
        row = by_hub_chipset(entry["chipset"])
        facts[device] = {
            "name": device,
            "chip": str(row["chip"]) if row else None,
            "hexagon_arch": f"v{chip['htp_version']}" if "htp_version" in chip else None,
            "soc_model": chip.get("soc_model"),
            "hub_chipset": entry["chipset"].removeprefix("qualcomm-"),
        }
    return facts


def _records(path: Path, chips: Mapping[str, dict[str, Any]], version: str) -> Iterator[Record]:
    model = path.parent.name
    made = detect.read(path.read_bytes())
    profiles = [each for each in (made if isinstance(made, list) else [made])
                if isinstance(each, Profile)]  # fmt: skip
    for number, profile in enumerate(profiles):
        device = profile.origin["device"]
        origin = {
            "source": f"{WHEEL} {version} (BSD-3-Clause), models/{model}/perf.yaml",
            "note": "published figures; repeats, heat, clocks and hashes are not told",
        }
        if profile.runtime:
            origin["build_id"] = profile.runtime
        yield Record(
            run_id=f"reference-aihub-{model}",
            host=f"{_slug(device)}-published",
            name=model,
            runner=profile.runner,
            repeat=number,
            metrics=profile.metrics,
            problems=profile.problems,
            emulated=False,
            origin={**origin, **profile.origin},
            facts={"soc": chips.get(device, {"name": device})},
            tags=("published",),
        )


def one_of(label: str, mine: Sequence[Record], other: Sequence[Record]) -> Sequence[Record]:
    """Return the published figure to compare with the records of the other side.

    Prefers figures that count, then those of the same chip, then those of the same runner. Raises
    InputError that names the words to choose by if several figures remain.
    """
    left = [record for record in mine if record.counts] or list(mine)
    for value_of in (_chip, attrgetter("runner")):
        theirs = set(map(value_of, other)) - {None}  # a chip that is not known is no other's
        same = [record for record in left if value_of(record) in theirs]
        left = same or left
    if len(left) == 1:
        return left
    keys = [key for key in _KEYS if len({_choice_words(record)[key] for record in left}) > 1]
    choices = [f"{key} {', '.join(sorted({_choice_words(r)[key] for r in left}))}" for key in keys]
    words = "/".join(_choice_words(left[0])[key] for key in keys)
    raise InputError(
        f"'{label}' is {len(left)} figures, and a comparison needs one: {'; '.join(choices)}",
        hint=f"choose one of each: {label}/{words}",
    )


def _chip(record: Record) -> object:
    return record.facts.get("soc", {}).get("chip")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def _choice_words(record: Record) -> dict[str, str]:
    """Return the words by which a figure can be chosen, by key."""
    soc = record.facts["soc"]
    words = {**record.origin, "chip": soc.get("chip"), "chipset": soc.get("hub_chipset")}
    return {key: _slug(str(words.get(key) or "")) for key in _KEYS}
