"""Genie profiles: true ones, several queries, other units, garbage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.errors import ProfileError, RunnerError
from fleet.model.record import Measure
from fleet.profiles.formats.genie import parse_profile, read

DATA = Path(__file__).parents[1] / "data"


def query(**values: object) -> dict[str, object]:
    return {"type": "GenieDialog_query", "duration": 1, **values}


def profile(*events: dict[str, object]) -> str:
    component = {"name": "dialog0", "type": "dialog", "events": list(events)}
    return json.dumps({"header": {}, "metadata": {}, "components": [component]})


def value(number: object, unit: str = "") -> dict[str, object]:
    return {"value": number, "unit": unit}


PUBLISHED = query(
    **{
        "num-prompt-tokens": value(823),
        "prompt-processing-rate": value(1547.98, "toks/sec"),
        "time-to-first-token": value(531665, "us"),
        "num-generated-tokens": value(200),
        "token-generation-rate": value(38.52, "toks/sec"),
        "token-generation-time": value(5191579, "us"),
    }
)
CREATED = {"type": "GenieDialog_create", "duration": 1, "init-time": value(1124713, "us")}


def test_published_profile() -> None:
    found = parse_profile(profile(CREATED, PUBLISHED))
    assert found.init_ms == pytest.approx(1124.713)
    assert (found.prompt_tokens, found.generated_tokens) == (823, 200)
    assert found.ttft_ms == pytest.approx(531.665)
    assert found.decode_ms == pytest.approx(5191.579)
    assert (found.prompt_tps, found.decode_tps) == (1547.98, 38.52)


def test_the_true_profile_of_a_small_model_of_ours() -> None:
    """Worked out by hand from the file: 29745 us, 75342 us, 268821 us."""
    found = parse_profile((DATA / "genie_dialog.json").read_text("utf-8"))
    assert found.init_ms == pytest.approx(29.745)
    assert found.ttft_ms == pytest.approx(75.342)
    assert found.decode_ms == pytest.approx(268.821)
    assert (found.prompt_tokens, found.generated_tokens) == (5, 26)
    assert (found.prompt_tps, found.decode_tps) == (66.36580657958984, 93.00595092773438)
    assert found.source["GenieDialog_query.time-to-first-token"] == Measure(75342, "us")
    assert found.source["GenieDialog_query.duration"] == Measure(344331, "us")
    assert found.others == {}


def test_the_true_profile_of_a_failed_create_says_so() -> None:
    found = read((DATA / "genie_profile.json").read_text("utf-8"))
    assert found.metrics.source == {}
    assert found.problems[0].startswith("failed: Genie created no dialog or pipeline")


def test_a_profile_without_a_query_is_cut() -> None:
    assert read(profile(CREATED)).problems == (
        "cut: Genie ended before it wrote the times of the query",
    )
    assert read(profile(CREATED, PUBLISHED)).problems == ()


EXECUTED = {**PUBLISHED, "type": "GeniePipeline_execute"}


def test_a_pipeline_has_its_own_numbers_and_those_of_its_parts_apart() -> None:
    events = [
        {"type": "GenieNode_create", "duration": 300000},
        {"type": "GenieNode_create", "duration": 500000},
        {"type": "GeniePipeline_create", "duration": 2000},
        EXECUTED,
        {
            "type": "GenieEmbedding_generate",
            "duration": 9,
            "num-prompt-tokens": value(7),
            "prompt-processing-rate": value(900.5, "toks/sec"),
        },
    ]
    found = parse_profile(profile(*events))
    assert found.init_ms == pytest.approx(2.0)
    assert (found.prompt_tokens, found.decode_tps) == (823, 38.52)
    assert found.others["node_init_ms"].value == pytest.approx(800.0)
    assert found.others["node_init_ms"].unit == "ms"
    assert found.others["embedding_prompt_tokens"] == Measure(7, "")
    assert found.others["embedding_prompt_tps"] == Measure(900.5, "tok/s")


def test_an_embedding_alone() -> None:
    events = [
        {"type": "GenieEmbedding_create", "duration": 5, "init-time": value(40000, "us")},
        {"type": "GenieEmbedding_generate", "num-prompt-tokens": value(12), "duration": 3},
    ]
    found = read(profile(*events))
    assert (found.metrics.init_ms, found.metrics.prompt_tokens) == (40, 12)
    assert (found.metrics.generated_tokens, found.problems) == (None, ())


def test_numbers_of_speculation_and_lora_keep_their_units() -> None:
    switched = {"lora-adapter-switching-time": value(1500, "us")}
    lora: dict[str, object] = {"type": "GenieDialog_applyLora", **switched}
    asked = {**PUBLISHED, "token-acceptance-rate": value(1.75, "toks/iteration")}
    found = parse_profile(profile(CREATED, lora, asked))
    assert found.others["lora_adapter_switching_time_ms"] == Measure(1.5, "ms")
    assert found.others["token_acceptance_rate"] == Measure(1.75, "toks/iteration")


def test_several_queries_are_averaged_and_not_overwritten() -> None:
    second = query(
        **{
            "num-generated-tokens": value(100),
            "token-generation-rate": value(40.52, "toks/sec"),
            "time-to-first-token": value(468335, "us"),
        }
    )
    found = parse_profile(profile(CREATED, PUBLISHED, second))
    assert found.generated_tokens == 300
    assert found.decode_tps == pytest.approx(39.52)
    assert found.ttft_ms == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("unit", "expected"), [("us", 0.5), ("ms", 500.0), ("s", 500000.0), ("parsec", None)]
)
def test_units_are_read_and_not_assumed(unit: str, expected: float | None) -> None:
    found = parse_profile(profile(query(**{"time-to-first-token": value(500, unit)})))
    assert found.ttft_ms == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("unit", ["us", "parsec", "bytes"])
def test_tokens_and_rates_with_another_unit_are_not_taken(unit: str) -> None:
    asked = query(
        **{
            "num-prompt-tokens": value(5, unit),
            "token-generation-rate": value(9.5, unit),
            "prompt-processing-rate": value(9.5),
        }
    )
    found = parse_profile(profile(asked))
    assert (found.prompt_tokens, found.decode_tps, found.prompt_tps) == (None, None, None)
    assert found.source["GenieDialog_query.token-generation-rate"] == Measure(9.5, unit)


def test_a_sum_that_would_lack_a_part_is_unknown() -> None:
    odd = query(**{"num-generated-tokens": value(100, "us"), "time-to-first-token": value(1, "x")})
    found = parse_profile(profile(PUBLISHED, odd))
    assert (found.generated_tokens, found.ttft_ms) == (None, None)
    assert found.prompt_tokens == 823


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (profile(PUBLISHED)[:-9], r"is truncated \(line 1\)"),
        (profile(PUBLISHED).replace("38.52", "38,52"), r"is not valid JSON: .* \(line 1\)"),
        ("[" * 100000, "fleet can read"),
        ('{"components": ' + "1" * 5000 + "}", "fleet can read"),
    ],
)
def test_the_place_of_the_damage_is_said(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        parse_profile(text)


def test_no_components_is_no_dialog() -> None:
    found = parse_profile(json.dumps({"header": {}, "components": None}))
    assert found.init_ms is None
    assert found.generated_tokens is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "12", '{"a": 1}', '{"components"', "Segmentation fault"]
)
def test_garbage_is_an_error(text: str) -> None:
    with pytest.raises(RunnerError):
        parse_profile(text)


@pytest.mark.parametrize("odd", ["UNKNOWN", None, True, [], float("inf")])
def test_a_value_that_is_no_number_is_left_out(odd: object) -> None:
    found = parse_profile(profile(query(**{"num-prompt-tokens": value(odd)})))
    assert found.prompt_tokens is None


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(json_values)
def test_any_json_is_metrics_or_a_runner_error(data: object) -> None:
    for text in (json.dumps(data), json.dumps({"components": data})):
        try:
            parse_profile(text)
        except RunnerError as error:
            assert error.message  # noqa: PT017
