"""The published figures: walkthroughs.md A, point 10, copied by hand."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from fleet.config.playbook import load_playbook
from fleet.config.schema import schema
from fleet.model.errors import InputError
from fleet.model.record import Measure, Record
from fleet.profiles.compare.conditions import Weight, check
from fleet.profiles.store import store

ROOT = Path(__file__).parents[2]


def test_the_nemotron_run_of_the_article() -> None:
    one = Record.from_dict(store.reference("nemotron-iq9075"))
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


PUBLISHED = (
    b"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    b"detailed thinking off<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    b"Explain gravity in one short English sentence.<|eot_id|>"
    b"<|start_header_id|>assistant<|end_header_id|>\n\n"
)


def test_the_shipped_playbook_has_the_prompt_of_the_published_run(tmp_path: Path) -> None:
    """The walk-through's here-document ends with the last header and an empty line."""
    shutil.copytree(ROOT / "assets" / "tiny-genie", tmp_path / "bundles/nemotron-nano-8b-iq9075")
    (tmp_path / "playbooks").mkdir()
    book = load_playbook(
        Path(shutil.copy(ROOT / "playbooks" / "nemotron-iq9075.yaml", tmp_path / "playbooks"))
    )
    assert book.run is not None
    assert book.run.prompt.encode() == PUBLISHED
    assert not book.warnings
    published = Record.from_dict(store.reference("nemotron-iq9075"))
    assert published.prompt_sha256 == hashlib.sha256(PUBLISHED).hexdigest()
    assert book.run.max_tokens > (published.metrics.generated_tokens or 0), "it ends by itself"


def test_runs_of_the_shipped_playbook_compare_with_the_published_run() -> None:
    published = Record.from_dict(store.reference("nemotron-iq9075"))
    ours = [
        replace(published, run_id="20261127-100000-aaaaaa", host="evk-07", repeat=turn,
                finish="eos", identity="ssh:evk-07", fleet="1", files={"bundle/part1.bin": "ab"})
        for turn in range(6)
    ]  # fmt: skip
    worst = [found.what for found in check([published], ours) if found.weight is Weight.BLOCKS]
    assert worst == []
    other = [replace(one, prompt_sha256=hashlib.sha256(PUBLISHED[:-1]).hexdigest()) for one in ours]
    assert "prompt" in {found.what for found in check([published], other)}


@pytest.mark.parametrize("name", store.references())
def test_a_reference_is_a_record_with_its_source(name: str) -> None:
    data = store.reference(name)
    Draft202012Validator(schema("record")).validate(data)
    assert Record.from_dict(data).origin["source"]


def test_a_reference_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"'\.\./x' is not one of") as caught:
        store.reference("../x")
    assert "reference:nemotron-iq9075" in caught.value.hint
