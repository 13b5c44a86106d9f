"""Identification of the SoC: from inventory, kernel id or device tree, or unknown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from fleet.data import load
from fleet.model.errors import InputError
from fleet.model.facts import Soc, Windows

Row = Mapping[str, Any]
OLDEST_HTP = 68  # the oldest Hexagon with an HTP backend


def _rows() -> list[Row]:
    return list(load("socs")["socs"])


def by_chip(name: str) -> Row | None:
    """Return the row of a chip (`QCS9075`, any case), None if the table does not contain it."""
    return next((row for row in _rows() if row["chip"].lower() == name.lower()), None)


def by_property(name: str) -> Row | None:
    """Return the row of ro.soc.model, or None; `SM8750P` and `SM8650-AC` are bins of a chip."""
    bare = re.fullmatch(r"(SM[0-9]{4})-?[A-Z]{1,2}", name)
    return by_chip(name) or (by_chip(bare[1]) if bare else None)


def by_hub_chipset(name: str) -> Row | None:
    """Return the row of AI Hub's `qualcomm-qcs9075`, `qcs8550-proxy` or `sm8750-ac`, or None."""
    bare = name.lower().removeprefix("qualcomm-").removesuffix("-proxy")
    return by_property(load("socs")["aihub"].get(bare, bare).upper())


def by_kernel_id(number: int) -> Row | None:
    """Return the row of a number in /sys/devices/soc0/soc_id, None for an unlisted number."""
    return next((row for row in _rows() if number in row["kernel_soc_ids"]), None)


def by_soc_model(number: int) -> tuple[Row, ...]:
    """Return all rows with a QNN soc_model; several chips of a die family share one."""
    return tuple(row for row in _rows() if number in models_of(row))


def by_inf(code: str | None) -> Row | None:
    """Return the row of the INF code of a Windows NPU driver (`8380`), None if no row has it."""
    return next((row for row in _rows() if code and _pc(row).get("inf_code") == code), None)


def by_processor(name: str | None) -> Row | None:
    """Return the row of a Windows processor (`Snapdragon(R) X X1E80100 @ 3.40 GHz`), or None."""
    words = set((name or "").split())
    return next((row for row in _rows() if words & set(_pc(row).get("processors", ()))), None)


def _pc(row: Row) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = row.get("windows") or {}
    return entry


def models_of(row: Row) -> tuple[int, ...]:
    """Return all soc_models of a chip; QCS6490 has two (35 in old SDKs, 93 in new ones)."""
    numbers = [row.get("soc_model"), *row.get("soc_model_candidates", ())]
    return tuple(dict.fromkeys(number for number in numbers if number is not None))


def by_tree(compatible: Iterable[str], model: str | None) -> Row | None:
    """Return the row of a device tree: by its most specific compatible string, else by its model.

    Returns None if neither is in the table.
    The upstream tree of the IQ-9075 EVK names qcs9100 and never qcs9075. Both belong to one die
    family with one soc_model, so only the name of the family's row is wrong.
    """
    for text in compatible:
        chip = text.partition(",")[2]
        if text.startswith("qcom,") and (row := by_chip(chip)):
            return row
        for row in _rows():
            if any(listed[:1] == [text] for listed in row.get("compatible", ())):
                return row
    return next((row for row in _rows() if model and model in row.get("models", ())), None)


def identify(
    observed: Soc,
    override: str | None = None,
    *,
    android: str | None = None,
    platform: str | None = None,
    windows: Windows | None = None,
) -> Soc:
    """Return the observed identity with chip, soc_model, arch and VTCM, or the source `unknown`.

    `override` is the inventory's chip; raises InputError if the table does not contain it.
    Otherwise the first source with a row is used: kernel id, `android` (ro.soc.model), INF code of
    the NPU driver and processor name (both in `windows`), device tree. The device tree comes first
    if the file soc_id is covered, and is ignored if the kernel id is not in the table. `platform`
    (ro.board.platform), shared by several chips, appears only in `conflict`.
    """
    rows = {
        "soc_id": None if (kernel := observed.kernel_soc_id) is None else by_kernel_id(kernel),
        "android": by_property(android) if android else None,
        "npu-driver": by_inf(windows.inf_code) if windows else None,
        "processor": by_processor(windows.processor) if windows else None,
        "device-tree": by_tree(observed.compatible, observed.model),
    }
    source: str
    row: Row | None
    if override is not None:
        source, row = "inventory", _named(override)
    else:
        # An unlisted kernel id is a new chip, which the device tree of an older board cannot name.
        known = [name for name in rows if name != "device-tree" or kernel is None]
        source = next((name for name in known if rows[name]), "unknown")
        source = "device-tree" if observed.covered and rows["device-tree"] else source
        row = rows.get(source)
    if row is None:
        return replace(
            observed, source="unknown", conflict=_unlisted(observed, rows["device-tree"], platform)
        )
    return replace(
        observed,
        chip=row["chip"],
        soc_model=row.get("soc_model"),
        soc_model_candidates=tuple(
            dict.fromkeys((*models_of(row), *_shown(observed, rows["soc_id"])))
        ),
        hexagon_arch=row.get("arch"),
        vtcm_mb=row.get("vtcm_mb"),
        source=source,
        conflict=_covered(observed, row, rows["soc_id"]) or _conflict(row, source, rows),
        htp=_has_htp(row),
    )


def no_htp(soc: Soc) -> str:
    """Return why a chip cannot run models that were compiled for the NPU."""
    why = f"Hexagon {soc.hexagon_arch}" if soc.hexagon_arch else "QAIRT lists no HTP for this chip"
    return f"{soc.chip} has no HTP: {why}; the HTP backend begins with v{OLDEST_HTP}"


def _has_htp(row: Row) -> bool | None:
    """Return True if QNN has an HTP backend for the chip, None if its arch is unknown."""
    arch = row.get("arch")
    return row.get("htp") if arch is None else int(arch[1:]) >= OLDEST_HTP


def _shown(observed: Soc, row: Row | None) -> tuple[int, ...]:
    """Return the soc_models that the libraries see on a chip with a covered soc_id."""
    return models_of(row) if observed.covered and row is not None else ()


def _covered(observed: Soc, row: Row, other: Row | None) -> str:
    if not observed.covered or (other is not None and other["chip"] == row["chip"]):
        return ""
    named = f", {other['chip']}," if other else ""
    return (
        f"soc_id {observed.kernel_soc_id}{named} comes from a file that is mounted over "
        f"the file of the kernel: {row['chip']}"
    )


def _named(chip: str) -> Row:
    row = by_property(chip.upper())
    if row is None:
        names = [row["chip"] for row in _rows()]
        close = difflib.get_close_matches(chip.upper(), names, 3) or names[:8]
        raise InputError(
            f"`soc: {chip}` is not a chip that fleet knows", hint="one of: " + ", ".join(close)
        )
    return row


def _unlisted(observed: Soc, tree: Row | None, platform: str | None) -> str:
    chips = load("socs").get("platforms", {}).get(platform or "", ())
    if chips:
        return f"ro.board.platform {platform} stands for several chips: {', '.join(chips)}"
    if observed.kernel_soc_id is None or tree is None:
        return ""
    return f"soc_id {observed.kernel_soc_id} is unknown, but the device tree says {tree['chip']}"


def _conflict(row: Row, source: str, rows: Mapping[str, Row | None]) -> str:
    for name, other in rows.items():
        if other is not None and other.get("arch") != row.get("arch"):
            label = name.replace("device-tree", "device tree").replace("android", "ro.soc.model")
            return f"{source} says {row['chip']}, but {label} says {other['chip']}"
    return ""
