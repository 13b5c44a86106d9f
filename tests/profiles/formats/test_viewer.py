"""Files of the real qnn-profile-viewer 2.25 (../real/viewer): our own model of two operations on
the emulator of QAIRT 2.51, with its default, HTP and JSON readers. Figures were read by hand.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.model.errors import ProfileError
from fleet.model.record import Measure, Op
from fleet.profiles.formats import detect, qnn, qnn_json
from fleet.profiles.formats.base import Profile

DATA = Path(__file__).parents[1] / "real" / "viewer"
RUNTIME = "2.51.0.260929181845"
# µs; netrun_…: what qnn-net-run saw, the rest what the backend says. Means over the inferences.
TIMES: dict[str, dict[str, float]] = {
    "basic": {
        "netrun_init": 711420, "netrun_compose": 650079, "netrun_finalize": 61318,
        "netrun_deinit": 404, "netrun_execute": 37887.5, "finalize": 60800,
        "accelerator_deinit": 365, "deinit": 393, "accelerator_execute": 37687,
        "execute": 37722.5, "execute_first": 38233, "execute_later": 37212,
        "execute_median": 37722.5, "execute_p90": 38233,
    },
    "client": {
        "netrun_init": 76227, "netrun_compose": 76204, "netrun_deinit": 187,
        "netrun_execute": 17984,
    },
    "detailed": {
        "netrun_init": 362927, "netrun_compose": 315084, "netrun_finalize": 47820,
        "netrun_deinit": 426, "netrun_execute": 79316.33, "finalize": 47782,
        "accelerator_deinit": 198, "deinit": 225, "vtcm_acquire": 3271.67, "power_on": 16100.67,
        "accelerator_execute": 79052.67, "execute": 79287.67, "execute_first": 51569,
        "execute_later": 93147,
        "execute_median": 87357, "execute_p90": 98937,
    },
    "optrace": {
        "netrun_init": 90225, "netrun_compose": 74732, "netrun_finalize": 15461,
        "netrun_deinit": 140, "netrun_execute": 12463, "finalize": 15308,
        "accelerator_deinit": 97, "deinit": 129, "vtcm_acquire": 6430, "power_on": 11267,
        "accelerator_execute": 12332, "execute": 12444,
    },
}  # fmt: skip
RATES = {"basic": 25.953802, "client": 54.794521, "detailed": 12.414855, "optrace": 79.516541}
GRAPH_CYCLES = {"detailed": 13562.67, "optrace": 10509}
OPS = {
    "detailed": {"Input": 836, "Relu1": 8862.33, "Add1": 2309, "Output": 1555.33},
    "optrace": {"Input": 2742, "Relu1": 3279, "Add1": 3978, "Output": 510},
}


def text_of(name: str) -> str:
    return (DATA / name).read_text("utf-8")


def profile_of(name: str) -> Profile:
    found = detect.read((DATA / name).read_bytes())
    assert isinstance(found, Profile)
    return found


def times_of(found: Profile) -> dict[str, float]:
    others = found.metrics.others
    return {
        name.removesuffix("_us"): round(measure.value, 2)
        for name, measure in others.items()
        if measure.unit == "us"
    }


def ops_of(found: Profile) -> dict[str, float]:
    assert {op.unit for op in found.ops} <= {"cycles"}
    return {op.name: round(op.value, 2) for op in found.ops}


@pytest.mark.parametrize("level", TIMES)
@pytest.mark.parametrize("reader", ["", ".htp"])
def test_the_csv_of_every_level(level: str, reader: str) -> None:
    found = profile_of(f"{level}{reader}.csv")
    others = found.metrics.others
    assert (found.format, found.runtime, found.problems) == ("qnn-csv", RUNTIME, ())
    assert times_of(found) == TIMES[level]
    assert not any("null" in name or "graph_0" in name for name in others), "not by identifier"
    cycles = others.get("accelerator_execute_cycles")
    assert (cycles and round(cycles.value, 2)) == GRAPH_CYCLES.get(level)
    assert ops_of(found) == OPS.get(level, {})
    rate = None if reader else Measure(RATES[level], "inf/s")
    assert others.get("ips") == rate, "the HTP reader leaves that row out"


def test_numbers_stay_as_they_are_written() -> None:
    source = profile_of("detailed.csv").metrics.source
    assert source["NETRUN INIT"] == Measure(362927, "US")
    assert source["NETRUN EXECUTE / Graph 0: tiny#2"] == Measure(98967, "US")
    assert source["NETRUN EXECUTE IPS"] == Measure(12.414855, "INF/SEC")
    assert source["QNN (execute) time#3"] == Measure(87357, "US")
    assert not any("OpId" in name for name in source), "operations have a place of their own"


@pytest.mark.parametrize("level", TIMES)
def test_the_json_says_the_same_but_for_what_net_run_saw(level: str) -> None:
    found = profile_of(f"{level}.json")
    assert (found.format, found.runtime) == ("qnn-json", RUNTIME)
    backend = {k: v for k, v in TIMES[level].items() if not k.startswith("netrun_")}
    assert times_of(found) == backend
    assert ops_of(found) == OPS.get(level, {})
    rate = found.metrics.others["ips"]
    assert rate.value == pytest.approx(RATES[level], rel=1e-6)
    assert rate.unit == "inf/s"


@pytest.mark.parametrize("level", TIMES)
def test_both_together_and_either_alone(level: str) -> None:
    data, table = text_of(f"{level}.json"), text_of(f"{level}.csv")
    both = qnn.merged(data, table)
    assert times_of(both) == TIMES[level]
    assert both.ops == qnn_json.read(json.loads(data)).ops
    assert both.metrics.source["NETRUN INIT"].unit == "US"
    assert qnn.merged(None, table) == qnn.read(table)
    assert qnn.merged(data, None) == qnn.merged(data, "") == qnn_json.read(json.loads(data))


def test_operations_come_from_the_json() -> None:
    data = json.loads(text_of("detailed.json"))
    data["messages"] = [said for said in data["messages"] if said["method"] != "BACKEND_EXECUTE"]
    assert qnn.merged(json.dumps(data), text_of("detailed.csv")).ops == ()


@pytest.mark.parametrize(
    ("data", "table", "said"),
    [
        (None, None, "is empty"),
        ("{", None, "JSON"),
        ("[]", None, "JSON"),
        ("{}", None, "messages"),
        (None, "x", "does not have the columns"),
    ],
)
def test_what_is_none_of_them_is_an_error(data: str | None, table: str | None, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        qnn.merged(data, table)


def test_places_of_damage_count_the_lines_before_the_table() -> None:
    lines = text_of("basic.csv").splitlines(keepends=True)
    lines[6] = lines[6].replace("650079", "650,079")
    with pytest.raises(ProfileError, match="8 values for 7 columns") as caught:
        qnn.read("".join(lines))
    assert caught.value.line == 7


def test_two_graphs_are_not_mixed() -> None:
    """The rows of `basic` twice, the second time for another graph (both under their names)."""
    lines = text_of("basic.csv").splitlines(keepends=True)
    again = [
        line.replace("547", "647").replace("Graph 0: tiny", "Graph 1: big").replace("38233", "90")
        for line in lines
        if ",EXECUTE," in line
    ]
    others = qnn.read("".join([*lines[:-1], *again])).metrics.others
    assert others["tiny_execute_us"].value == 37722.5
    assert others["big_execute_us"].value == (90 + 37212) / 2
    assert others["tiny_netrun_execute_us"].value == 37887.5
    assert "execute_us" not in others
    assert others["finalize_us"].value == 60800, "of one graph only"


def test_two_graphs_are_not_mixed_where_the_json_stands_beside_the_table() -> None:
    """The JSON reader names no graph, so the table has to tell them apart."""
    data = json.loads(text_of("optrace.json"))
    (ran,) = [said for said in data["messages"] if said["method"] == "BACKEND_EXECUTE"]
    again = json.loads(json.dumps(ran))
    for event in again["profilingEvents"]:
        event["value"] = 90
    data["messages"].append(again)
    lines = text_of("optrace.csv").splitlines(keepends=True)
    beside = [
        line.replace("54750159", "64750159").replace("Graph 0: tiny", "Graph 1: big")
        for line in lines
        if ",EXECUTE," in line
    ]
    table = "".join([*lines, *(line.replace("12444", "90") for line in beside)])
    assert qnn_json.read(data).metrics.others["execute_us"].value == (12444 + 90) / 2
    found = qnn.merged(json.dumps(data), table)
    others = found.metrics.others
    assert others["tiny_execute_us"].value == 12444
    assert others["big_execute_us"].value == 90
    assert others["tiny_netrun_execute_us"].value == 12463
    assert not {"execute_us", "accelerator_execute_cycles"} & set(others)
    assert [op.graph for op in found.ops] == ["tiny"] * 4 + ["big"] * 4
    assert found.runtime == RUNTIME


def test_a_number_of_two_phases_is_not_one_mean() -> None:
    """`Number of HVX threads used` under EXECUTE, and the same words under FINALIZE."""
    lines = text_of("basic.csv").splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if "QNN (finalize)" in line)
    lines.insert(place, lines[place].replace("60800,US", "8,COUNT").replace(
        "QNN (finalize) time", "Number of HVX threads used"))  # fmt: skip
    others = qnn.read("".join(lines)).metrics.others
    assert others["hvx_threads"] == Measure(0)
    assert others["finalize_hvx_threads"] == Measure(8)


def test_operations_of_two_graphs_have_their_names() -> None:
    lines = text_of("optrace.csv").splitlines(keepends=True)
    again = [
        line.replace("54750159", "64750159").replace("Graph 0: tiny", "Graph 1: big")
        for line in lines
        if ",EXECUTE," in line
    ]
    found = qnn.read("".join([*lines, *again])).ops
    assert [op.graph for op in found] == ["tiny"] * 4 + ["big"] * 4
    assert found[1] == Op("Relu1", 3279, "cycles", graph="tiny")
