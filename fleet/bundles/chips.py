"""The chips for which a bundle was made, by its binaries, its configuration and its names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from fleet.data import load
from fleet.facts.soc import Row, by_property, by_soc_model
from fleet.model.bundle import Bundle

_CODE = re.compile(r"(?<![A-Z0-9])(?:SM|QCS|QCM|SC|SA|SAR|SXR|SSG|SW|CQ|QRB)[0-9]{4}[A-Z]{0,2}(?![A-Z0-9])")  # fmt: skip  # noqa: E501
_ARCH = re.compile(r"(?<![a-z0-9])v(6[89]|7[3579]|8[135])(?![0-9a-z])")
_RECORDS = ("metadata.json", "metadata.yaml", "tool-versions.yaml", "*pull*.json")
_RECORD_BYTES = 1 << 16


@dataclass(frozen=True)
class NamedChip:
    """A chip or Hexagon arch (`v73`) that `source` names; None if it names only the other one."""

    chip: str | None
    arch: str | None
    source: str


def chips_in(text: str) -> Iterator[Row]:
    """Yield the rows of the chips that a text names: `SM8550`, `qualcomm_qcs9075`, `8_elite`."""
    plain = text.lower().replace("_", "-").replace(" ", "-")
    names: dict[str, str] = load("socs")["aihub"]
    for name in sorted(names, key=len, reverse=True):
        if re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", plain):
            plain = plain.replace(name, "")
            if row := by_property(names[name]):
                yield row
    for code in dict.fromkeys(_CODE.findall(plain.upper())):
        if row := by_property(code):
            yield row


def named_chips(bundle: Bundle) -> list[NamedChip]:
    """Return the chips that the files of a bundle name, the most reliable source first."""
    named = [*_compiled(bundle), *chips_of_extensions(bundle.extensions, bundle.extensions_name)]
    for file in bundle.files:
        if any(fnmatchcase(file.name, like) for like in _RECORDS) and file.size <= _RECORD_BYTES:
            text = file.source.read_text("utf-8", "replace")
            named += [NamedChip(row["chip"], row.get("arch"), file.name) for row in chips_in(text)]
    for name in (bundle.name, *(file.name for file in bundle.files)):
        rows, arch = list(chips_in(name)), _ARCH.search(name.lower())
        where = f"the name {name.rpartition('/')[2]}"
        named += [NamedChip(row["chip"], row.get("arch"), where) for row in rows]
        if arch and not rows:
            named.append(NamedChip(None, arch[0], where))
    unique: dict[tuple[str | None, str | None], NamedChip] = {}
    for item in named:
        unique.setdefault((item.chip, item.arch), item)
    return list(unique.values())


def _compiled(bundle: Bundle) -> Iterator[NamedChip]:
    for item in bundle.contexts:
        rows = by_soc_model(item.soc_model) if item.soc_model else ()
        chip = item.soc_type or "/".join(row["chip"] for row in rows) or None
        if chip or item.hexagon_arch:
            yield NamedChip(chip, item.hexagon_arch, item.name)


def chips_of_extensions(data: Mapping[str, Any], name: str = "") -> Iterator[NamedChip]:
    """Yield the chips of an HTP extension file: soc_model and dsp_arch of each device."""
    devices = data.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if not isinstance(device, dict):
            continue
        number, arch = device.get("soc_model", device.get("soc_id")), device.get("dsp_arch")
        rows = by_soc_model(number) if type(number) is int and number > 0 else ()
        chip = "/".join(row["chip"] for row in rows) or None
        if chip or isinstance(arch, str):
            arch = arch if isinstance(arch, str) else rows[0].get("arch")
            yield NamedChip(chip, arch, name)
