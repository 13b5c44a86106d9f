"""Which SoC is it: inventory, kernel id, device tree, or unknown."""

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
OLDEST_HTP = 68  # the oldest Hexagon that has an HTP backend


def _rows() -> list[Row]:
    return list(load("socs")["socs"])


def by_chip(name: str) -> Row | None:
    """The row of a chip (`QCS9075`, any case), None when it is not in the table."""
    return next((row for row in _rows() if row["chip"].lower() == name.lower()), None)


def by_property(name: str) -> Row | None:
    """The row of ro.soc.model; `SM8750P` and `SM8650-AC` are bins of the chip without a mark."""
    bare = re.fullmatch(r"(SM[0-9]{4})-?[A-Z]{1,2}", name)
    return by_chip(name) or (by_chip(bare[1]) if bare else None)


def by_hub_chipset(name: str) -> Row | None:
    """The row of AI Hub's `qualcomm-qcs9075`, `qualcomm-qcs8550-proxy`, `sm8750-ac`."""
    bare = name.lower().removeprefix("qualcomm-").removesuffix("-proxy")
    return by_property(load("socs")["aihub"].get(bare, bare).upper())


def by_kernel_id(number: int) -> Row | None:
    """The row of a number of /sys/devices/soc0/soc_id."""
    return next((row for row in _rows() if number in row["kernel_soc_ids"]), None)


def by_soc_model(number: int) -> tuple[Row, ...]:
    """All rows with a QNN soc_model; several chips of a die family share one."""
    return tuple(row for row in _rows() if number in models_of(row))


def by_inf(code: str | None) -> Row | None:
    """The row of the INF code of a Windows NPU driver (`8380`)."""
    return next((row for row in _rows() if code and _pc(row).get("inf_code") == code), None)


def by_processor(name: str | None) -> Row | None:
    """The row of a Windows processor name (`Snapdragon(R) X 12-core X1E80100 @ 3.40 GHz`)."""
    words = set((name or "").split())
    return next((row for row in _rows() if words & set(_pc(row).get("processors", ()))), None)


def _pc(row: Row) -> Mapping[str, Any]:
    found: Mapping[str, Any] = row.get("windows") or {}
    return found


def models_of(row: Row) -> tuple[int, ...]:
    """Every soc_model that stands for a chip; QCS6490 has two (35 in old SDKs, 93 in new)."""
    found = [row.get("soc_model"), *row.get("soc_model_candidates", ())]
    return tuple(dict.fromkeys(number for number in found if number is not None))


def by_tree(compatible: Iterable[str], model: str | None) -> Row | None:
    """The row of a device tree: the most specific compatible string, else the model.

    The upstream tree of the IQ-9075 EVK names qcs9100 and never qcs9075: same die family,
    same soc_model, so the family's row is right for everything but the name.
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
    seen: Soc,
    override: str | None = None,
    *,
    android: str | None = None,
    platform: str | None = None,
    windows: Windows | None = None,
) -> Soc:
    """Fill in chip, soc_model, arch and VTCM of what was seen.

    `override` is the chip that the inventory names; InputError when the table has no such
    chip. `android` is what a phone says it is (ro.soc.model), `platform` its
    ro.board.platform: that stands for several chips, and nothing is derived from it. A kernel
    id wins over the phone's word, that over the device tree. `windows` gives the INF code of
    its NPU driver, which wins over the name of the processor. A contradiction goes into
    `conflict`.
    """
    rows = {
        "soc_id": by_kernel_id(seen.kernel_soc_id) if seen.kernel_soc_id is not None else None,
        "android": by_property(android) if android else None,
        "npu-driver": by_inf(windows.inf_code) if windows else None,
        "processor": by_processor(windows.processor) if windows else None,
        "device-tree": by_tree(seen.compatible, seen.model),
    }
    source: str
    row: Row | None
    if override is not None:
        source, row = "inventory", _named(override)
    else:
        # A kernel id that no table lists is news; the tree of an older board is no answer.
        known = [name for name in rows if name != "device-tree" or seen.kernel_soc_id is None]
        source = next((name for name in known if rows[name]), "unknown")
        source = "device-tree" if seen.covered and rows["device-tree"] else source
        row = rows.get(source)
    if row is None:
        return replace(
            seen, source="unknown", conflict=_unlisted(seen, rows["device-tree"], platform)
        )
    return replace(
        seen,
        chip=row["chip"],
        soc_model=row.get("soc_model"),
        soc_model_candidates=tuple(dict.fromkeys((*models_of(row), *_shown(seen, rows["soc_id"])))),
        hexagon_arch=row.get("arch"),
        vtcm_mb=row.get("vtcm_mb"),
        source=source,
        conflict=_covered(seen, row, rows["soc_id"]) or _conflict(row, source, rows),
        htp=_has_htp(row),
    )


def no_htp(soc: Soc) -> str:
    """Why a chip cannot run what was compiled for the NPU, in words."""
    why = f"Hexagon {soc.hexagon_arch}" if soc.hexagon_arch else "QAIRT lists no HTP for this chip"
    return f"{soc.chip} has no HTP: {why}; the HTP backend begins with v{OLDEST_HTP}"


def _has_htp(row: Row) -> bool | None:
    """Whether QNN has an HTP backend for the chip; None where its arch is not known."""
    arch = row.get("arch")
    return row.get("htp") if arch is None else int(arch[1:]) >= OLDEST_HTP


def _shown(seen: Soc, row: Row | None) -> tuple[int, ...]:
    """What the libraries take a chip for whose soc_id is covered."""
    return models_of(row) if seen.covered and row is not None else ()


def _covered(seen: Soc, row: Row, other: Row | None) -> str:
    if not seen.covered or (other is not None and other["chip"] == row["chip"]):
        return ""
    named = f", {other['chip']}," if other else ""
    return (
        f"soc_id {seen.kernel_soc_id}{named} comes from a file that is mounted over the file of "
        f"the kernel: {row['chip']}"
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


def _unlisted(seen: Soc, tree: Row | None, platform: str | None) -> str:
    chips = load("socs").get("platforms", {}).get(platform or "", ())
    if chips:
        return f"ro.board.platform {platform} stands for several chips: {', '.join(chips)}"
    if seen.kernel_soc_id is None or tree is None:
        return ""
    return f"soc_id {seen.kernel_soc_id} is unknown, but the device tree says {tree['chip']}"


def _conflict(row: Row, source: str, rows: Mapping[str, Row | None]) -> str:
    for name, other in rows.items():
        if other is not None and other.get("arch") != row.get("arch"):
            said = name.replace("device-tree", "device tree").replace("android", "ro.soc.model")
            return f"{source} says {row['chip']}, but {said} says {other['chip']}"
    return ""
