"""Tensors: measures against values worked out by hand, limits, and what is wrong with samples."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.config.playbook import load_playbook, playbook_errors
from fleet.model.errors import InputError, Position, SuiteError
from fleet.model.suite import PerplexityUse, TensorFile, TensorLimits, TensorSample, TensorUse
from fleet.verify.tensors import (
    PreparedSamples,
    difference,
    judge_samples,
    load,
    outputs_in,
    packed,
    perplexity,
    prepare,
    recorded,
    surprise,
    top_agreement,
)

ROOT = Path(__file__).parents[2]
HERE = Position(Path("p.yaml"), 5, 7)
LINE = np.linspace(-1.0, 1.0, 1000, dtype=np.float32)


def test_measures() -> None:
    wanted, found = np.array([[3.0, 4.0]]), np.array([[3.0, 3.0]])
    one = difference("y", wanted, found, TensorLimits())
    assert (one.max_abs, one.mean_abs, one.span) == (1.0, 0.5, 1.0)
    assert one.sqnr_db == pytest.approx(10 * math.log10(25 / 1))
    assert one.cosine == pytest.approx(21 / (5 * math.sqrt(18)))
    assert difference("y", wanted, wanted, TensorLimits()).text == "y: equal"


def quantised(bits: int) -> Any:
    step = 2.0 / (2**bits - 1)
    return (np.round(LINE / step) * step).astype(np.float32)


@pytest.mark.parametrize("bits", [8, 6, 16])
def test_quantisation_noise_passes_by_default(bits: int) -> None:
    one = difference("y", LINE, quantised(bits), TensorLimits())
    assert one.faults == ()
    assert one.sqnr_db == pytest.approx(6.02 * bits, abs=1.5), "Bennett: a uniform signal"


@pytest.mark.parametrize(
    "wrong",
    [LINE * 1.2, LINE + 0.2, LINE[::-1], np.zeros_like(LINE), np.clip(LINE, -0.4, 0.4)],
    ids=["scale", "zero point", "reversed", "zeros", "saturated"],
)
def test_faults_do_not_pass_by_default(wrong: Any) -> None:
    assert difference("y", LINE, wrong, TensorLimits()).faults


def test_one_wrong_channel_among_many_exceeds_the_range() -> None:
    wrong = LINE.copy()
    wrong[500] = 0.9
    (fault,) = difference("y", LINE, wrong, TensorLimits()).faults
    assert "as a share of the range, of y is" in fault


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (TensorLimits(max_abs=0.01), "the largest difference of y is 0.2, the limit is 0.01"),
        (TensorLimits(mean_abs=0.01), "the mean difference of y is"),
        (TensorLimits(sqnr_db=40), "the SQNR in dB of y is"),
        (TensorLimits(cosine=0.99999), "the cosine of y is"),
    ],
)
def test_each_limit(limits: TensorLimits, words: str) -> None:
    wrong = LINE * np.float32(1.2)
    wrong[0] = 1.0 - 1.0 if limits.cosine else wrong[0]
    (fault,) = difference("y", LINE, wrong, limits).faults
    assert words in fault
    loose = TensorLimits(max_abs=9, mean_abs=9, sqnr_db=-9, cosine=-1)
    assert difference("y", LINE, wrong, loose).faults == ()


def test_integers_have_to_be_equal() -> None:
    ids = np.arange(5)
    assert difference("ids", ids, ids, TensorLimits()).faults == ()
    assert difference("ids", ids, ids + 1, TensorLimits()).faults


def test_what_is_no_number_is_a_fault() -> None:
    wrong = LINE.copy()
    wrong[3] = np.nan
    (fault,) = difference("y", LINE, wrong, TensorLimits(max_abs=9)).faults
    assert fault == "y has 1 values that are NaN or infinite"


def test_top_k() -> None:
    wanted = np.array([[0.1, 0.9, 0.5, 0.4]])
    found = np.array([[0.1, 0.9, 0.4, 0.5]])
    assert (top_agreement(wanted, found, 1), top_agreement(wanted, found, 2)) == (1.0, 0.5)
    assert difference("y", wanted, found, TensorLimits(top_k=1)).faults == ()
    assert top_agreement(np.array([0, 9], np.uint8), np.array([0, 9], np.uint8) + 1, 1) == 1.0
    assert top_agreement(np.array([0, 9], np.uint8), np.array([9, 0], np.uint8), 1) == 0.0
    (fault,) = difference("y", wanted, found, TensorLimits(top_k=2)).faults
    assert fault == "the top 2 of y agree in 50%, 100% are needed"


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LINE)
    np.savez(tmp_path / "a.npz", x=LINE, y=LINE)
    LINE.tofile(tmp_path / "a.raw")
    assert load(tmp_path / "a.npy").keys() == {""}
    assert load(tmp_path / "a.npz").keys() == {"x", "y"}
    assert (load(tmp_path / "a.raw", "float32", (10, 100))[""].ravel() == LINE).all()
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01")
    for name, dtype, words in (
        ("a.raw", "", "raw file"),
        ("a.raw", "float64", "has 4000 bytes, but float64"),
        ("bad.npy", "", "cannot read"),
        ("no.npz", "", "cannot read"),
    ):
        with pytest.raises(SuiteError, match=words):
            load(tmp_path / name, dtype, (10, 100))


def sample(tmp_path: Path, x: Any, y: Any = None, member: str = "") -> TensorUse:
    np.save(tmp_path / "x.npy", x)
    expected = {}
    if y is not None:
        np.save(tmp_path / "y.npy", y)
        expected = {"y": TensorFile(tmp_path / "y.npy")}
    inputs = {"x": TensorFile(tmp_path / "x.npy", member)}
    return TensorUse((TensorSample("1", inputs, expected, HERE),))


IN, OUT = {"x": ("float", (1, "n"))}, {"y": ("float", (1, 4))}
ONE = np.ones((1, 4), np.float32)


def test_samples_become_one_archive(tmp_path: Path) -> None:
    made = prepare(sample(tmp_path, ONE, ONE), IN, OUT)
    assert np.load(io.BytesIO(made.archive)).files == ["0/x"]
    assert made.names == ("1",)
    other = prepare(sample(tmp_path, ONE, ONE * 2), IN, OUT)
    assert other.sha256 != made.sha256


@pytest.mark.parametrize(
    ("x", "y", "member", "words"),
    [
        (ONE[0], ONE, "", r"the input x is float32 \[4\]; the model has float32"),
        (ONE.astype(np.int8), ONE, "", "the input x is int8"),
        (ONE, ONE[:, :3], "", r"the output y is float32 \[1, 3\]"),
        (ONE * np.nan, ONE, "", "has 4 values that are NaN"),
        (ONE, ONE * np.inf, "", "has 4 values that are NaN or infinite"),
        (ONE, None, "", "has no expected outputs, and `verify:` has no reference"),
        (ONE, ONE, "z", "has no tensor 'z'"),
    ],
)
def test_a_wrong_sample_is_one_error(
    tmp_path: Path, x: Any, y: Any, member: str, words: str
) -> None:
    with pytest.raises(SuiteError, match=words) as caught:
        prepare(sample(tmp_path, x, y, member), IN, OUT)
    assert caught.value.position == HERE
    assert caught.value.hint


def test_an_unknown_or_missing_input(tmp_path: Path) -> None:
    use = sample(tmp_path, ONE, ONE)
    with pytest.raises(SuiteError, match="the model has no input x"):
        prepare(use, {"z": IN["x"]}, OUT)
    with pytest.raises(SuiteError, match="input z is missing"):
        prepare(use, {**IN, "z": IN["x"]}, OUT)


def archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_outputs_are_judged_and_nothing_that_a_device_writes_raises() -> None:
    prepared = PreparedSamples(("a", "b"), b"", ({"y": ONE * LINE[5]},) * 2, {}, "0" * 64)
    good = ONE * LINE[5]
    assert judge_samples(prepared, archive(**{"0/y": good, "1/y": good})).holds
    half = judge_samples(prepared, archive(**{"0/y": good}), "failed: exit status 1")
    assert (half.shown, half.failing[0].faults) == ("1 of 2 samples", ("failed: exit status 1",))
    words = np.array(["a", "b"]).reshape(1, -1)
    stored = archive(**{"0/y": good, "1/y": good})
    for bad in (
        *(b"", b"PK\x03\x04", b"\x93NUMPY", archive(**{"0/y": good[0], "1/y": good})),
        archive(**{"0/y": np.resize(words, good.shape), "1/y": good}),
        archive(**{"0/y": good.astype(complex), "1/y": good}),
        # Both headers say "deflated" of bytes that are stored as they are.
        re.sub(
            rb"(PK\x03\x04.{4}|PK\x01\x02.{6})\x00\x00", b"\\1\x08\x00", stored, flags=re.DOTALL
        ),
    ):
        assert not judge_samples(prepared, bad).holds


def test_recorded_outputs_are_a_reference_for_the_same_inputs(tmp_path: Path) -> None:
    first = replace(sample(tmp_path, ONE), record=True)
    asked = prepare(first, IN, OUT)
    assert not judge_samples(asked, b"", "failed").holds
    given = archive(**{"0/y": ONE * 3})
    assert "y: recorded [" in judge_samples(asked, given).answers[0].text
    kept = tmp_path / "good.npz"
    kept.write_bytes(recorded(asked, given))
    assert recorded(asked, b"PK\x03\x04") == b"PK\x03\x04"
    strict = {"": TensorLimits(max_abs=0.0)}
    later = prepare(replace(first, reference=kept, record=False, limits=strict), IN, OUT)
    assert judge_samples(later, given).holds
    flipped = judge_samples(later, archive(**{"0/y": np.nextafter(ONE * 3, 4)}))
    assert "the largest difference of y" in flipped.failing[0].faults[0]
    other = replace(sample(tmp_path, ONE * 2), reference=kept)
    with pytest.raises(SuiteError, match="not recorded with the inputs"):
        prepare(other, IN, OUT)


def test_each_sample_has_its_own_recorded_outputs_and_its_expected_ones_first(
    tmp_path: Path,
) -> None:
    (one,) = sample(tmp_path, ONE).samples
    np.save(tmp_path / "two.npy", ONE * 2)
    np.save(tmp_path / "right.npy", ONE * 9)
    two = replace(one, name="b", inputs={"x": replace(one.inputs["x"], path=tmp_path / "two.npy")})
    both = replace(sample(tmp_path, ONE), samples=(one, two), record=True)
    given = archive(**{"0/y": ONE * 3, "1/y": ONE * 5})
    kept = tmp_path / "good.npz"
    kept.write_bytes(recorded(prepare(both, IN, OUT), given))
    strict = {"": TensorLimits(max_abs=0.0)}
    later = replace(both, reference=kept, record=False, limits=strict)
    assert judge_samples(prepare(later, IN, OUT), given).holds
    wrong = judge_samples(prepare(later, IN, OUT), archive(**{"0/y": ONE * 3, "1/y": ONE * 3}))
    assert [answer.passed for answer in wrong.answers] == [True, False]
    right = replace(one, expected={"y": replace(one.inputs["x"], path=tmp_path / "right.npy")})
    result = judge_samples(prepare(replace(later, samples=(right, two)), IN, OUT), given)
    assert [answer.passed for answer in result.answers] == [False, True]


def test_files_of_a_run_are_outputs_by_their_names() -> None:
    rows = ({"y.raw": ONE, "z.npy": ONE}, {"Result_1/y.raw": ONE})
    array = io.BytesIO()
    np.save(array, ONE * 2)
    files = {
        "out/Result_0/y.raw": ONE.tobytes()[:-1], "out/z.npy": array.getvalue(),
        "out/Result_1/y.raw": ONE.tobytes(), "other": b"",
    }  # fmt: skip
    del rows[0]["y.raw"]
    prepared = PreparedSamples(("a", "b"), b"", rows, {}, "0" * 64)
    result = judge_samples(prepared, outputs_in(rows, files))
    assert [answer.passed for answer in result.answers] == [False, True]
    short = {"Result_0/y.raw": ONE}
    result = judge_samples(replace(prepared, expected=(short, short)), outputs_in((short,), files))
    assert "has the shape [15], its reference [1, 4]" in result.answers[0].faults[0]
    assert "gave no output" in result.answers[1].faults[0]
    twice = ({"y.raw": ONE},)
    assert len(np.load(io.BytesIO(outputs_in(twice, files)))) == 0, "two files have this name"
    damaged = outputs_in(({"z.npy": ONE},), {"z.npy": b"\x93NUMPY"})
    assert len(np.load(io.BytesIO(damaged))) == 0


BOOK = f"name: t\nbundle: {{path: {ROOT / 'assets' / 'tiny-ort'}, kind: ort}}\nverify:\n"


def book(tmp_path: Path, text: str) -> Path:
    np.save(tmp_path / "x.npy", ONE)
    (tmp_path / "p.yaml").write_text(BOOK + text)
    return tmp_path / "p.yaml"


def test_in_a_playbook(tmp_path: Path) -> None:
    text = (
        "  samples: [{inputs: {x: x.npy}, expected: {y: {file: x.npy, dtype: int8, shape: [4]}}}]\n"
    )
    text += "  limits: {sqnr: 30dB}\n  outputs: {y: {max_abs: 0.05, top_k: 5}}\n"
    use = load_playbook(book(tmp_path, text)).verify
    assert use is not None
    assert use.limits == {
        "": TensorLimits(sqnr_db=30.0), "y": TensorLimits(max_abs=0.05, top_k=5)
    }  # fmt: skip
    assert use.samples[0].expected["y"].shape == (4,)
    assert (use.samples[0].position.line, use.gate) == (4, "health")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("  samples: []\n", 4, "has no samples"),
        ("  samples: [{inputs: {x: no.npy}}]\n", 4, "no.npy does not exist"),
        ("  samples: [{inputs: {}}]\n", 4, "the sample has no inputs"),
        ("  samples: [{name: a}]\n", 4, "the sample has no inputs"),
        ("  samples: [{inputs: {x: x.npy}}]\n  limits: {sqnr: loud}\n", 5, "number of decibels"),
        ("  samples: [{inputs: {x: x.npy}}]\n  limits: {max_abs: -1}\n", 5, "no number from 0 on"),
        ("  samples: [{inputs: {x: x.npy}}]\n  limits: {cosin: 1}\n", 5, "unknown key 'cosin'"),
        ("  samples: [{inputs: {x: {file: x.npy, dtype: f32, shape: [4]}}}]\n", 4, "'f32'"),
        ("  samples: [{inputs: {x: x.npy}}]\n  reference: no.onnx\n", 5, "does not exist"),
    ],
)
def test_wrong_in_a_playbook(tmp_path: Path, text: str, line: int, words: str) -> None:
    (error,) = playbook_errors(book(tmp_path, text))
    assert isinstance(error, InputError)
    assert words in error.message
    assert error.position is not None
    assert error.position.line == line


def test_a_reference_is_run_on_this_workstation(tmp_path: Path) -> None:
    model = ROOT / "tests" / "bundles" / "data" / "tiny_u8.onnx"
    x = np.load(ROOT / "assets" / "tiny-ort" / "x.npy")
    use = TensorUse(
        (TensorSample("1", sample(tmp_path, x).samples[0].inputs, {}, HERE),), {}, model
    )
    (wanted,) = prepare(use, None, None).expected
    given = np.load(ROOT / "assets" / "tiny-ort" / "out.npy")
    assert np.abs(next(iter(wanted.values())) - given).max() <= 0.051
    other = TensorSample("1", {"z": use.samples[0].inputs["x"]}, {}, HERE)
    wrong = TensorUse((other,), {}, model)
    with pytest.raises(SuiteError, match="does not take this sample"):
        prepare(wrong, None, None)


def numbers(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(3).normal(0, 4, shape).astype(np.float32)


def softmax_perplexity(pairs: list[tuple[Any, Any]]) -> float:
    """By the definition, in float64: exp of minus the mean of ln p(token) over all tokens."""
    logs = []
    for logits, ids in pairs:
        for row in range(ids.shape[0]):
            for place in range(1, ids.shape[1]):
                weights = np.exp(logits[row, place - 1].astype(np.float64))
                logs.append(math.log(weights[ids[row, place]] / weights.sum()))
    return math.exp(-sum(logs) / len(logs))


def asked(limit: float | None, pairs: list[tuple[Any, Any]]) -> tuple[PreparedSamples, bytes]:
    """Samples of token ids, and the logits that a device gave for them."""
    prepared = PreparedSamples(
        tuple(f"s{n}" for n in range(len(pairs))),
        packed({"input_ids": ids} for _, ids in pairs),
        tuple({} for _ in pairs), {}, "",
        perplexity=PerplexityUse(at_most=limit),
    )  # fmt: skip
    return prepared, packed({"logits": logits} for logits, _ in pairs)


def test_perplexity_is_exp_of_the_mean_over_all_tokens_of_all_samples() -> None:
    rng = np.random.default_rng(4)
    pairs = [(numbers((1, n, 50)), rng.integers(0, 50, (1, n))) for n in (9, 3, 20)]
    prepared, archive = asked(None, pairs)
    value = perplexity(prepared, archive)
    assert value == pytest.approx(softmax_perplexity(pairs), rel=1e-12)
    uniform, ids = np.zeros((1, 9, 50), np.float32), np.arange(9)[None]
    assert perplexity(*asked(None, [(uniform, ids)])) == pytest.approx(50)
    assert surprise(uniform + 1e30, ids) == pytest.approx(math.log(50)), "no overflow"


def test_no_sample_passes_beyond_the_limit_of_the_perplexity() -> None:
    ids = np.arange(9)[None]
    prepared, archive = asked(49.0, [(np.zeros((1, 9, 50), np.float32), ids)] * 2)
    result = judge_samples(prepared, archive, "", perplexity(prepared, archive))
    (fault,) = {fault for answer in result.answers for fault in answer.faults}
    assert fault == "the perplexity over all samples is 50, the limit is 49"
    assert (result.passed, result.holds) == (0, False)
    prepared = replace(prepared, perplexity=PerplexityUse(at_most=51))
    assert judge_samples(prepared, archive, "", perplexity(prepared, archive)).holds


@pytest.mark.parametrize(
    "logits",
    [np.zeros((1, 1, 50), np.float32), np.zeros((1, 9, 5), np.float32),
     np.full((1, 9, 50), np.nan, np.float32), np.zeros((), np.float32),
     np.full((1, 9, 50), np.inf), np.ones((1, 9, 50), np.complex64)],
    ids=["last row only", "another vocabulary", "NaN", "no axis", "infinite", "complex"],
)  # fmt: skip
def test_outputs_that_are_no_logits_of_the_tokens_are_a_fault(logits: Any) -> None:
    prepared, archive = asked(None, [(logits, np.arange(9)[None])])
    value = perplexity(prepared, archive)
    assert value is None
    (answer,) = judge_samples(prepared, archive, "", value).answers
    assert any("the perplexity is unknown: logits has no row" in text for text in answer.faults)


def test_samples_of_one_token_have_no_perplexity_of_their_own() -> None:
    single = np.zeros((1, 1, 50), np.float32), np.zeros((1, 1), int)
    assert perplexity(*asked(None, [single])) is None
    several = np.zeros((1, 9, 50), np.float32), np.arange(9)[None]
    assert perplexity(*asked(None, [single, several])) == pytest.approx(50)


def test_the_perplexity_of_a_playbook_needs_the_tokens(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(9)[None])
    row = TensorSample("1", {"ids": TensorFile(tmp_path / "x.npy")}, {}, HERE)
    use = TensorUse((row,), perplexity=PerplexityUse(tokens="ids"))
    assert prepare(use, None, None).perplexity == use.perplexity, "it needs no expected output"
    with pytest.raises(SuiteError, match="sample 1 has no input input_ids") as caught:
        prepare(replace(use, perplexity=PerplexityUse()), None, None)
    assert caught.value.position == HERE
