"""Which chip a model of AI Hub was made for: device attributes and model metadata → SoC."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.facts.soc import Row, by_hub_chipset, by_soc_model


@dataclass(frozen=True)
class Target:
    """A device of AI Hub. None is unknown; `notes` are contradictions, for people."""

    name: str
    os: str
    attributes: tuple[str, ...]
    chip: str | None
    soc_model: int | None
    hexagon_arch: str | None
    notes: tuple[str, ...]


def target_of(name: str, os: str, attributes: Iterable[str], metadata: Mapping[str, str]) -> Target:
    """What is known of the target.

    `attributes` are AI Hub's: `chipset:qualcomm-qcs9075`, `hexagon:v73`, `soc-model:77`
    (docs/sources/deployment.md 8); `metadata` that of the model. What the context binary says
    counts, then the attributes, then the table of SoCs.
    """
    told = [text.partition(":")[::2] for text in attributes]
    chipsets = [value for key, value in told if key == "chipset"]
    models = {
        "the model": _number(metadata.get("qnn_context_bin_soc_model")),
        "the device": _number(next((v for key, v in told if key == "soc-model"), None)),
    }
    soc_model = next((model for model in models.values() if model), None)
    row = next((row for row in map(by_hub_chipset, chipsets) if row), None) or _only(soc_model)
    archs = {
        "the model": _arch(metadata.get("qnn_context_bin_hexagon_version")),
        "the device": _arch(next((v for key, v in told if key == "hexagon"), None)),
        "the table of SoCs": str(row["arch"]) if row and row.get("arch") else None,
    }
    return Target(
        name=name,
        os=os,
        attributes=tuple(attributes),
        chip=str(row["chip"]) if row else None,
        soc_model=soc_model or (row.get("soc_model") if row else None),
        hexagon_arch=next((arch for arch in archs.values() if arch), None),
        notes=(*_contradictions("Hexagon arch", archs), *_contradictions("soc_model", models)),
    )


def _only(soc_model: int | None) -> Row | None:
    rows = by_soc_model(soc_model) if soc_model else ()
    return rows[0] if len(rows) == 1 else None


def _contradictions(what: str, said: Mapping[str, object]) -> tuple[str, ...]:
    known = {who: value for who, value in said.items() if value is not None}
    if len(set(known.values())) < 2:
        return ()
    return (f"{what}: " + ", ".join(f"{who} says {value}" for who, value in known.items()),)


def _number(text: str | None) -> int | None:
    """0 is QNN's word for no chip in particular."""
    match = re.fullmatch(r"\d{1,6}", (text or "").strip())
    return (int(match[0]) or None) if match else None


def _arch(text: str | None) -> str | None:
    match = re.fullmatch(r"v?(\d{2,3})", (text or "").strip().lower())
    return f"v{match[1]}" if match else None
