"""Which SoC it is: cases as data, and the whole table against what libQnnHtp itself answers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fleet.data import load
from fleet.facts.soc import by_chip, by_kernel_id, by_soc_model, identify, models_of
from fleet.model.errors import InputError
from fleet.model.facts import Soc

MEASURED = Path(__file__).parent / "data" / "soc_id_table_qairt2.51.0.csv"
IQ9_TREE = ("qcom,qcs9075-addons-iq-9075-evk", "qcom,qcs9075", "qcom,sa8775p")
UPSTREAM_TREE = ("qcom,lemans-evk", "qcom,qcs9100", "qcom,sa8775p")

# (kernel id, compatible, model, inventory) -> (chip, soc_model, arch, source)
CASES = [
    ((676, (), None, None), ("QCS9075", 77, "v73", "soc_id")),
    ((667, (), None, None), ("QCS9100", 77, "v73", "soc_id")),
    ((534, (), None, None), ("SA8775P", 52, "v73", "soc_id")),
    ((675, (), None, None), ("QCS8275", 82, "v75", "soc_id")),
    ((603, (), None, None), ("QCS8550", 66, "v73", "soc_id")),
    ((519, (), None, None), ("SM8550", 43, "v73", "soc_id")),
    ((557, (), None, None), ("SM8650", 57, "v75", "soc_id")),
    ((618, (), None, None), ("SM8750", 69, "v79", "soc_id")),
    ((660, (), None, None), ("SM8850", 87, "v81", "soc_id")),
    ((555, (), None, None), ("SC8380XP", 60, "v73", "soc_id")),
    ((None, IQ9_TREE, None, None), ("QCS9075", 77, "v73", "device-tree")),
    ((None, UPSTREAM_TREE, None, None), ("QCS9075", 77, "v73", "device-tree")),
    ((None, ("arduino,monza", "qcom,monaco-monza", "qcom,qcs8300"), None, None),
     ("QCS8275", 82, "v75", "device-tree")),
    ((None, ("x,board", "qcom,qcs8300"), None, None), ("QCS8300", 82, "v75", "device-tree")),
    ((None, (), "Radxa Dragon Q6A", None), ("QCS6490", None, "v68", "device-tree")),
    ((None, (), "Thundercomm RUBIK Pi 3", None), ("QCS6490", None, "v68", "device-tree")),
    ((None, (), None, None), (None, None, None, "unknown")),
    ((9999, (), None, None), (None, None, None, "unknown")),
    ((9999, IQ9_TREE, None, None), (None, None, None, "unknown")),
    ((77, (), None, None), (None, None, None, "unknown")),
    ((None, ("raspberrypi,5",), "Raspberry Pi 5", None), (None, None, None, "unknown")),
    ((None, (), None, "QCS9075"), ("QCS9075", 77, "v73", "inventory")),
    ((None, (), None, "qcs9075"), ("QCS9075", 77, "v73", "inventory")),
    ((9999, (), None, "SM8650"), ("SM8650", 57, "v75", "inventory")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_identify(
    given: tuple[int | None, tuple[str, ...], str | None, str | None],
    expected: tuple[str | None, int | None, str | None, str],
) -> None:
    number, compatible, model, override = given
    seen = Soc(kernel_soc_id=number, compatible=compatible, model=model)
    found = identify(seen, override)
    assert (found.chip, found.soc_model, found.hexagon_arch, found.source) == expected


def test_contradictions_are_said() -> None:
    tree = ("arduino,monza", "qcom,qcs8300")
    assert "device tree says QCS8275" in identify(Soc(676, compatible=tree)).conflict
    assert identify(Soc(676, compatible=IQ9_TREE)).conflict == ""
    assert "soc_id says QCS9075" in identify(Soc(676), "SM8650").conflict
    assert "soc_id 9999 is unknown" in identify(Soc(9999, compatible=IQ9_TREE)).conflict


def test_a_covered_soc_id_does_not_name_the_chip() -> None:
    tree = ("radxa,dragon-q8b", "qcom,sc8280xp")
    found = identify(Soc(460, compatible=tree, covered=True))
    assert (found.chip, found.soc_model, found.hexagon_arch) == ("SC8280XP", 37, "v68")
    assert found.source == "device-tree"
    assert found.soc_model_candidates == (37, 39), "the libraries read 460: SA8295P"
    assert "soc_id 460, SA8295P, comes from a file that is mounted over" in found.conflict
    assert identify(Soc(449, compatible=tree, covered=True)).conflict == ""
    unknown = identify(Soc(460, covered=True))
    assert (unknown.chip, unknown.source) == ("SA8295P", "soc_id"), "nothing else names it"


@pytest.mark.parametrize(
    ("kernel", "chip", "htp"),
    [
        (676, "QCS9075", True), (400, "SM7250", False), (459, "SM7225", False),
        (365, "SM7150", False), (568, "SM4450", False), (582, "SM4450", False),
        (469, "QCM4290", False), (640, "SM6650", None), (9999, None, None),
    ],
)  # fmt: skip
def test_a_chip_without_an_htp_is_known_as_such(
    kernel: int, chip: str | None, htp: bool | None
) -> None:
    found = identify(Soc(kernel))
    assert (found.chip, found.htp) == (chip, htp)


def test_what_libqnnhtp_reports_no_htp_for_has_none_in_the_table() -> None:
    with MEASURED.open() as stream:
        none = [row for row in csv.DictReader(stream) if row["note"] == "no HTP device reported"]
    chips = {int(row["linux_soc_id"]): row["qnn_soc_name"] for row in none}
    for number in set(chips) - {690}:  # SA8797P is newer than the measured runtime
        found = identify(Soc(number))
        assert found.htp is False or (found.chip is None and chips[number] == "SM6150"), number


@pytest.mark.parametrize("name", ["SM8350P", "SM8650-AC", "sm8750p"])
def test_a_bin_of_a_chip_is_the_chip(name: str) -> None:
    assert identify(Soc(), name).chip == name[:6].upper()


def test_a_wrong_name_in_the_inventory_gets_close_ones() -> None:
    with pytest.raises(InputError) as caught:
        identify(Soc(), "QCS9057")
    assert "QCS9075" in caught.value.hint


def test_qcs6490_has_two_ids() -> None:
    row = by_chip("QCS6490")
    assert row is not None
    assert set(models_of(row)) == {93, 35}
    assert row in by_soc_model(93)


def rows() -> list[dict[str, str]]:
    with MEASURED.open() as stream:
        return [row for row in csv.DictReader(stream) if row["qnn_soc_model"]]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["linux_soc_id"])
def test_table_agrees_with_what_libqnnhtp_answered(row: dict[str, str]) -> None:
    found = by_kernel_id(int(row["linux_soc_id"]))
    if found is None:
        return
    assert int(row["qnn_soc_model"]) in models_of(found), found["chip"]
    assert found["arch"] in {None, f"v{row['dsp_arch']}"}
    if found["vtcm_mb"] is not None and row["vtcm_mb"]:
        assert found["vtcm_mb"] == int(row["vtcm_mb"])


def test_table_is_sound() -> None:
    table = load("socs")["socs"]
    chips = [row["chip"] for row in table]
    assert len(chips) == len(set(chips))
    ids = [number for row in table for number in row["kernel_soc_ids"]]
    assert len(ids) == len(set(ids)), "a kernel id stands for one chip"
    sources = load("socs")["sources"]
    for row in table:
        assert set(row["sources"]) <= set(sources), row["chip"]
        assert row["confidence"] in {"certain", "likely", "uncertain"}
