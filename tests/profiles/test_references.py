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
from fleet.profiles import references
from fleet.profiles.compare.conditions import Weight, check
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.selecting import compare_groups, group_of
from fleet.profiles.store import ProfileStore
from fleet.profiles.store.select import parse

ROOT = Path(__file__).parents[2]


def test_the_nemotron_run_of_the_article() -> None:
    one = Record.from_dict(references.plain("nemotron-iq9075")[0])
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
    published = Record.from_dict(references.plain("nemotron-iq9075")[0])
    assert published.prompt_sha256 == hashlib.sha256(PUBLISHED).hexdigest()
    assert book.run.max_tokens > (published.metrics.generated_tokens or 0), "it ends by itself"


def test_runs_of_the_shipped_playbook_compare_with_the_published_run() -> None:
    published = Record.from_dict(references.plain("nemotron-iq9075")[0])
    ours = [
        replace(published, run_id="20261127-100000-aaaaaa", host="evk-07", repeat=turn,
                finish="eos", identity="ssh:evk-07", fleet="1", files={"bundle/part1.bin": "ab"})
        for turn in range(6)
    ]  # fmt: skip
    worst = [found.what for found in check([published], ours) if found.weight is Weight.BLOCKS]
    assert worst == []
    other = [replace(one, prompt_sha256=hashlib.sha256(PUBLISHED[:-1]).hexdigest()) for one in ours]
    assert "prompt" in {found.what for found in check([published], other)}


@pytest.mark.parametrize("name", references.names())
def test_a_reference_is_a_record_with_its_source(name: str) -> None:
    (data,) = references.plain(name)
    Draft202012Validator(schema("record")).validate(data)
    assert Record.from_dict(data).origin["source"]


def test_a_reference_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"'\.\./x' is not one of") as caught:
        references.plain("../x")
    assert "reference:nemotron-iq9075" in caught.value.hint


DEVICES = """
chipsets:
  qualcomm-qcs9075: {htp_version: 73, soc_model: 77, aliases: [qcs9075]}
  qualcomm-of-tomorrow: {}
devices:
  Dragonwing IQ-9075 EVK: {chipset: qualcomm-qcs9075}
  Phone of Tomorrow: {chipset: qualcomm-of-tomorrow}
"""
PERF = """
precisions:
  w4a16:
    components:
      Llm:
        performance_metrics:
          Dragonwing IQ-9075 EVK:
            genie:
              llm_metrics:
              - {context_length: 4096, desired_compute_unit: npu, tokens_per_second: 17.5,
                 time_to_first_token_range_milliseconds: {max: 3397.25, min: 106.5}}
            geniex_qairt:
              llm_metrics:
              - {context_length: 512, desired_compute_unit: npu, tokens_per_second: 18.5,
                 prefill_tokens_per_second: 1483.5,
                 time_to_first_token_range_milliseconds: {max: 345.25, min: 86.5}}
              - {context_length: 4096, desired_compute_unit: npu, tokens_per_second: 12.5,
                 prefill_tokens_per_second: 958.5,
                 time_to_first_token_range_milliseconds: {max: 4272.5, min: 133.5}}
              tool_versions: {geniex: v0.9.1, qairt: '2.50'}
          Phone of Tomorrow:
            geniex_qairt:
              llm_metrics:
              - {context_length: 512, desired_compute_unit: npu, tokens_per_second: 30.5,
                 prefill_tokens_per_second: 2602.5,
                 time_to_first_token_range_milliseconds: {max: 196.5, min: 49.5}}
            geniex_llamacpp:
              llm_metrics:
              - {context_length: 512, desired_compute_unit: cpu, tokens_per_second: 5.5,
                 prefill_tokens_per_second: 32.5,
                 time_to_first_token_range_milliseconds: {max: 15873.5, min: 3968.5}}
            qnn_dlc:
              {estimated_peak_memory_range_mb: {max: 10, min: 4}, job_id: jabc, job_status: Passed,
               inference_time_milliseconds: 17.25, layer_counts: {npu: 470, cpu: 8, total: 478},
               primary_compute_unit: NPU, tool_versions: {qairt: 2.50.0.260828221209}}
supported_chipsets: [qualcomm-qcs9075]
"""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data of the wheel qai-hub-models as it lies installed: `pip install --no-deps`."""
    site = tmp_path / "site"
    about = site / "qai_hub_models-0.65.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: qai_hub_models\nVersion: 0.65.0\n"
    )
    folder = site / "qai_hub_models"
    for name in ("llm_4b", "llm_8b"):
        (folder / "models" / name).mkdir(parents=True)
        (folder / "models" / name / "perf.yaml").write_text(PERF)
    (folder / "__init__.py").write_text("raise ImportError('nothing of the wheel is imported')")
    (folder / "devices_and_chipsets.yaml").write_text(DEVICES)
    monkeypatch.syspath_prepend(str(site))
    return site


def test_every_row_of_ai_hub_is_a_record_and_nothing_is_guessed(wheel: Path) -> None:
    found = references.aihub("llm_4b")
    assert [one.repeat for one in found] == list(range(6))
    genie, short, _, unversioned, cpu, network = found
    assert (genie.runner, genie.metrics.decode_tps, genie.metrics.ttft_ms) == ("genie", 17.5, None)
    assert genie.metrics.others["ttft_max_ms"] == Measure(3397.25, "ms")
    assert genie.origin["source"].startswith("qai-hub-models 0.65.0 (BSD-3-Clause), models/llm_4b")
    assert "runtime" not in genie.origin, "the row names no QAIRT"
    assert genie.facts["soc"] == {
        "name": "Dragonwing IQ-9075 EVK", "chip": "QCS9075", "hexagon_arch": "v73",
        "soc_model": 77, "hub_chipset": "qcs9075",
    }  # fmt: skip
    assert (short.runner, short.metrics.prompt_tps) == ("geniex", None)
    assert short.metrics.others["padded_prompt_tps"] == Measure(1483.5, "tok/s")
    assert (short.origin["runtime"], short.origin["tools"]["geniex"]) == ("qairt-2.50", "v0.9.1")
    assert "build_id" not in short.origin, "2.50 is no build"
    assert unversioned.metrics.others["prefill_tps"] == Measure(2602.5, "tok/s")
    assert unversioned.facts["soc"]["chip"] is None
    assert cpu.problems == ("cpu-fallback: the figure is of the CPU",)
    assert (network.runner, network.origin["build_id"]) == ("ai-hub", "2.50.0.260828221209")
    assert network.metrics.others["ops_off_npu"] == Measure(8)
    assert network.metrics.others["peak_memory_max"] == Measure(10, "MB")
    assert [one for one in found if one.emulated is not False or one.tags != ("published",)] == []
    assert len(references.aihub("")) == 12
    for data in references.plain("aihub:llm_4b"):
        Draft202012Validator(schema("record")).validate(data)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("llm_4b/QCS9075", [17.5, 18.5, 12.5]),
        ("llm_4b/qcs9075/", [17.5, 18.5, 12.5]),
        ("llm_4b/dragonwing-iq-9075-evk/genie", [17.5]),
        ("llm_4b/iq9075", None),
        ("llm_4b/qcs9075/geniex_qairt/4096", [12.5]),
        ("llm_4b/of-tomorrow/npu/geniex-qairt", [30.5]),
    ],
)
def test_words_choose_among_the_figures(wheel: Path, text: str, rates: list[float] | None) -> None:
    if rates is None:
        with pytest.raises(InputError, match="nothing is named 'iq9075'") as caught:
            references.aihub(text)
        assert "qcs9075" in caught.value.hint
    else:
        assert [one.metrics.decode_tps for one in references.aihub(text)] == rates


def test_a_model_without_figures_and_a_wheel_that_is_not_there(wheel: Path) -> None:
    with pytest.raises(InputError, match="no figures of 'llm'") as caught:
        references.aihub("llm")
    assert caught.value.hint == "use one of: llm_4b, llm_8b"
    (wheel / "qai_hub_models-0.65.0.dist-info" / "METADATA").unlink()
    (wheel / "qai_hub_models-0.65.0.dist-info").rmdir()
    with pytest.raises(InputError, match="qai-hub-models, which is not installed") as caught:
        references.aihub("llm_4b")
    assert "install --no-deps qai-hub-models" in caught.value.hint


def test_compare_with_ai_hub_names_what_differs(wheel: Path, tmp_path: Path) -> None:
    ours = [
        replace(references.aihub("llm_4b/genie")[0], run_id="20261127-100000-aaaaaa", tags=(),
                host="evk-07", repeat=turn, identity="ssh:evk-07", prompt_sha256="ab",
                emulated=True, origin={"build_id": "2.51.0.260929"})
        for turn in range(6)
    ]  # fmt: skip
    with ProfileStore(tmp_path) as store:
        published = group_of("reference:aihub:llm_4b", store)
        assert store.count(parse("reference:aihub:llm_4b")) == len(published.records) == 6
    made = compare_groups((published, group("last", ours)))
    assert [one.origin["published"] for one in made.a.records] == ["genie"], "of the same runner"
    told = {found.what: (found.weight, found.a, found.b) for found in made.findings}
    assert told["emulated"] == (Weight.BLOCKS, "no", "yes")
    assert told["context"] == (Weight.UNKNOWN, "4096", "unknown")
    assert told["precision"] == (Weight.UNKNOWN, "w4a16", "unknown")
    assert told["prompt"] == (Weight.UNKNOWN, "unknown", "ab")
    theirs = [replace(one, runner="geniex") for one in ours]
    with pytest.raises(InputError, match=r"is 2 figures.*context 4096, 512") as caught:
        compare_groups((published, group("last", theirs)))
    assert caught.value.hint == "choose one of each: reference:aihub:llm_4b/512"
    unknown = [replace(one, facts={}) for one in theirs]
    with pytest.raises(InputError, match=r"is 3 figures.*of-tomorrow"):
        compare_groups((published, group("last", unknown)))
