"""Devices of AI Hub → chips of the table."""

from __future__ import annotations

import pytest

from fleet.bundles.aihub.pull import qairt_of, target_of
from fleet.data import load
from fleet.facts.soc import by_chip, by_hub_chipset

# The chipsets of ai-hub-models 0.47 (devices_and_chipsets.yaml) and the chip behind each; None
# where the table has no such chip.
CHIPSETS = {
    "qualcomm-snapdragon-845": None,
    "qualcomm-snapdragon-765g": None,
    "qualcomm-snapdragon-865+": "SM8250",
    "qualcomm-snapdragon-888": "SM8350",
    "qualcomm-snapdragon-8gen1": "SM8450",
    "qualcomm-snapdragon-8gen2": "SM8550",
    "qualcomm-snapdragon-8gen3": "SM8650",
    "qualcomm-snapdragon-8-elite": "SM8750",
    "qualcomm-snapdragon-8-elite-for-galaxy": "SM8750",
    "sm8750-ac": "SM8750",
    "qualcomm-snapdragon-8-elite-gen5": "SM8850",
    "qualcomm-snapdragon-7gen4": "SM7750",
    "qualcomm-snapdragon-x-elite": "SC8380XP",
    "qualcomm-snapdragon-x-plus-8-core": None,
    "qualcomm-snapdragon-x2-elite": "SC8480XP",
    "qualcomm-sa8295p": "SA8295P",
    "qualcomm-sa8775p": "SA8775P",
    "qualcomm-sa7255p": "SA7255P",
    "qualcomm-qcm6690": "QCM6690",
    "qualcomm-qcs8550-proxy": "QCS8550",
    "qualcomm-qcs9075-proxy": "QCS9075",
    "qualcomm-qcs8275-proxy": "QCS8275",
    "qualcomm-qcs6490": "QCS6490",
    "qualcomm-qcs9075": "QCS9075",
    "": None,
}


@pytest.mark.parametrize(("chipset", "chip"), CHIPSETS.items())
def test_chipsets(chipset: str, chip: str | None) -> None:
    row = by_hub_chipset(chipset)
    assert (row["chip"] if row else None) == chip


def test_every_alias_names_a_row() -> None:
    assert [chip for chip in load("socs")["aihub"].values() if by_chip(chip) is None] == []


def test_attributes_fill_what_the_table_does_not_know() -> None:
    target = target_of(
        "RB3", "1.6", ["chipset:qualcomm-qcs6490", "hexagon:v68", "soc-model:93"], {}
    )
    assert (target.chip, target.soc_model, target.hexagon_arch) == ("QCS6490", 93, "v68")
    assert target.notes == ()


def test_the_binary_alone_names_a_chip_only_when_one_has_the_number() -> None:
    one = target_of("", "", [], {"qnn_context_bin_soc_model": "57"})
    assert (one.chip, one.hexagon_arch) == ("SM8650", "v75")
    family = target_of("", "", [], {"qnn_context_bin_soc_model": "77"})
    assert (family.chip, family.soc_model, family.hexagon_arch) == (None, 77, None)


@pytest.mark.parametrize("text", ["", "0", "x", "-1", "7.5", "99999999"])
def test_no_number_is_unknown(text: str) -> None:
    target = target_of("d", "", ["hexagon:new", "odd", f"soc-model:{text}"], {})
    assert (target.chip, target.soc_model, target.hexagon_arch) == (None, None, None)


def test_contradictions_are_notes() -> None:
    said = {"qnn_context_bin_soc_model": "57", "qnn_context_bin_hexagon_version": "v75"}
    target = target_of("d", "", ["chipset:qualcomm-qcs9075", "soc-model:77"], said)
    assert (target.chip, target.soc_model, target.hexagon_arch) == ("QCS9075", 57, "v75")
    assert target.notes == (
        "Hexagon arch: the model says v75, the table of SoCs says v73",
        "soc_model: the model says 57, the device says 77",
    )


@pytest.mark.parametrize(
    ("metadata", "tools", "version", "notes"),
    [
        ({"qairt_sdk_version": "v2.45.0.260326154327_1"}, {}, "2.45.0.260326154327", 0),
        ({"qnn_sdk_version": "2.31.0"}, {"QAIRT": "2.31.0.250130"}, "2.31.0", 0),
        ({"qairt_sdk_version": "2.45.0"}, {"qnn": "2.43.0", "onnx": "1.2"}, "2.45.0", 1),
        ({"qairt_sdk_version": "latest"}, {"QNN SDK": "2.43.0"}, "2.43.0", 0),
        ({}, {"onnx": "1.17.0", "tflite": "2.17"}, None, 0),
    ],
)
def test_qairt(
    metadata: dict[str, str], tools: dict[str, str], version: str | None, notes: int
) -> None:
    got, source, told = qairt_of(metadata, tools)
    assert (got, len(told), bool(source)) == (version, notes, version is not None)
