"""The list of metrics: the record, the page and the samples of programs say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.model.metrics import FIELDS, KNOWN, LESS, METRICS, MORE, NETWORK, limit_text
from fleet.model.record import Metrics
from fleet.profiles.formats import detect, executorch, geniex, llama_cpp, mllm
from fleet.profiles.formats.base import Profile
from fleet.runners.ort import _times
from fleet.runners.scripted import token_times

from ..profiles.formats.test_others import ESTIMATE, LOG, MLLM, OBSERVED
from ..runners.test_geniex import shape

ROOT = Path(__file__).parents[2]
REAL = ROOT / "tests" / "profiles"
GENIEX = shape("6")
TIMES = {"init_seconds": 0.5, "token_seconds": [0.1, 0.2, 0.4], "prompt_tokens": 5}


def names(*paths: str) -> set[str]:
    """The metrics of files, as far as the list has them."""
    found: set[str] = set()
    for path in paths:
        profile = detect.read((REAL / path).read_bytes())
        assert isinstance(profile, Profile)
        found |= known_of(profile.metrics)
    return found


def known_of(metrics: Metrics) -> set[str]:
    found = {name for name in FIELDS if getattr(metrics, name) is not None}
    return found | (metrics.others.keys() & KNOWN.keys())


def samples() -> dict[str, set[str]]:
    log = "real/executorch/stderr_profile0.txt"
    return {
        "genie": names("data/genie_dialog.json"),
        "geniex": known_of(geniex.metrics_of_run({}, GENIEX["runs"][0])),
        "llama_cpp": {*llama_cpp.timings(f"{LOG}\n{ESTIMATE}")},
        "executorch": {*executorch.observed(f"PyTorchObserver {json.dumps(OBSERVED)}")}
        | names(log),
        "mllm": {*mllm.rates(MLLM)},
        "qnn": names(
            "real/viewer/detailed.csv", "real/viewer/detailed.json", "real/viewer/client.csv"
        ),
        "ort": {*_times({"run_ms": 1.5, "runs_ms": [1.0, 2.0]})},
        "scripted": {*token_times(TIMES)},
    }


@pytest.mark.parametrize("name", KNOWN)
def test_the_list_names_the_formats_that_give_a_metric(name: str) -> None:
    given = {form for form, found in samples().items() if name in found}
    assert set(KNOWN[name].formats) == given


def test_a_record_has_a_field_for_each_metric_that_the_list_describes() -> None:
    assert set(Metrics.__struct_fields__) - {"others", "source"} == set(FIELDS)
    assert set(FIELDS).isdisjoint(NETWORK)


def test_a_metric_with_a_column_has_a_field() -> None:
    assert [m.name for m in METRICS if (m.tabled or m.listed) and not m.about] == []


def test_the_page_has_the_list() -> None:
    page = (ROOT / "docs" / "profiles.md").read_text("utf-8")
    words = {MORE: "more", LESS: "less"}
    rows = [
        f"| `{m.name}` | {m.unit or '-'} | {words.get(m.better, '-')} | {m.shown} "
        f"| {', '.join(m.formats)} |"
        for m in METRICS
    ]
    assert "\n".join(rows) in page, "\n".join(["docs/profiles.md needs:", *rows])


def test_gates_are_typed_with_a_sign() -> None:
    assert (limit_text("a", -0.05), limit_text("b_ms", 0.1)) == ("a<-5%", "b_ms>+10%")
