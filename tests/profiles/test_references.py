"""The published figures: walkthroughs.md A, point 10, copied by hand."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from fleet.config.schema import schema
from fleet.model.errors import InputError
from fleet.model.record import Measure, Record
from fleet.profiles import references


def test_the_nemotron_run_of_the_article() -> None:
    one = Record.from_dict(references.plain("nemotron-iq9075"))
    metrics = one.metrics
    assert metrics.init_ms == 4060
    assert (metrics.prompt_tokens, metrics.prompt_tps) == (29, 158.05)
    assert metrics.ttft_ms == 183.5
    assert (metrics.generated_tokens, metrics.decode_tps) == (31, 10.03)
    assert metrics.decode_ms == 3090
    assert metrics.source["init"] == Measure(4.06, "s")
    assert metrics.source["generation time"] == Measure(3.09, "s")
    assert one.counts
    assert one.emulated is False
    assert one.name == "nemotron-nano-8b", "as in playbooks/nemotron-iq9075.yaml"
    assert (one.seconds, one.status, one.finish, one.started) == (None, None, None, "")
    assert one.conditions.samples == ()
    assert "eivholt/qai-nemotron" in one.origin["source"]


@pytest.mark.parametrize("name", references.names())
def test_a_reference_is_a_record_with_its_source(name: str) -> None:
    data = references.plain(name)
    Draft202012Validator(schema("record")).validate(data)
    assert Record.from_dict(data).origin["source"]


def test_a_reference_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"'\.\./x' is not one of") as caught:
        references.plain("../x")
    assert "reference:nemotron-iq9075" in caught.value.hint
