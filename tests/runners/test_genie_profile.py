"""Genie profiles: true ones, several queries, other units, garbage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.errors import RunnerError
from fleet.profiles.formats.genie import parse_profile


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
