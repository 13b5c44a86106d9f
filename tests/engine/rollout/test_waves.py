"""Which device is in which wave, and when a wave ends the rollout: tables and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.engine.rollout.deploying import waves_of
from fleet.engine.rollout.judge import judge, tally
from fleet.engine.rollout.waves import Wave, plan_waves
from fleet.model.errors import InputError
from fleet.model.inventory import Host
from fleet.model.plain import read_plain, to_plain
from fleet.model.rollout import ALL_AT_ONCE, Amount, RolloutSpec

from .fakes import names, spec

WAVES = [
    # devices, canary, waves, sizes of the waves; that of the canary is text
    (10, "0", (), [10]),
    (10, "1", (), ["1", 9]),
    (10, "1", ("50%", "100%"), ["1", 4, 5]),
    (10, "1", ("5%", "25%"), ["1", 2, 7]),  # 5% of 10 is the canary already
    (100, "0", ("5%", "25%", "100%"), [5, 20, 75]),
    (100, "2%", ("10%", "50%"), ["2", 8, 40, 50]),
    (3, "0", ("1%", "34%"), [1, 1, 1]),  # rounded up: a wave that is asked for is not empty
    (3, "1%", ("50%",), ["1", 1, 1]),
    (40, "1", ("1", "5", "50%"), ["1", 4, 15, 20]),
    (7, "100%", ("50%",), ["7"]),
    (5, "9", (), ["5"]),
    (4, "0", ("10", "50%"), [4]),
    (1, "1", ("10%",), ["1"]),
    (1, "0", ("10%", "20%", "100%"), [1]),
    (0, "1", ("10%",), []),
    (8, "0", ("12.5%", "37.5%"), [1, 2, 5]),
]


@pytest.mark.parametrize(("count", "canary", "shares", "sizes"), WAVES)
def test_waves(count: int, canary: str, shares: tuple[str, ...], sizes: list[object]) -> None:
    waves = plan_waves(names(count), spec(canary=canary, waves=shares))
    found = [str(len(one.hosts)) if one.name == "canary" else len(one.hosts) for one in waves]
    assert found == sizes
    assert [name for wave in waves for name in wave.hosts] == names(count)
    numbers = [one.name for one in waves if one.name != "canary"]
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)]


AMOUNTS = st.one_of(st.integers(0, 60).map(str), st.integers(0, 100).map(lambda n: f"{n}%")).map(
    Amount.parse
)
SPECS = st.builds(
    RolloutSpec, canary=AMOUNTS, waves=st.lists(AMOUNTS, max_size=5).map(tuple),
    max_failed=AMOUNTS, max_unreachable=AMOUNTS,
    soak=st.sampled_from([0.0, 5.0]), on_fail=st.sampled_from(["stop", "continue", "rollback"]),
)  # fmt: skip


@given(st.integers(0, 50), SPECS, st.sets(st.integers(0, 49)))
def test_each_device_is_in_one_wave_and_the_order_stays(
    count: int, rules: RolloutSpec, picked: set[int]
) -> None:
    every = names(count)
    canaries = {every[index] for index in picked if index < count}
    waves = plan_waves(every, rules, canaries)
    flat = [name for wave in waves for name in wave.hosts]
    assert sorted(flat) == every
    assert all(wave.hosts for wave in waves)
    assert all(list(wave.hosts) == sorted(wave.hosts) for wave in waves)
    if canaries:
        assert set(waves[0].hosts) == canaries
    assert read_plain(RolloutSpec, to_plain(rules), "rollout", "") == rules


def board(name: str, *groups: str) -> Host:
    return Host(name, groups=("all", *groups))


HOSTS = [board("a1", "left"), board("a2", "right"), board("b1", "left"), board("b2", "right")]


@pytest.mark.parametrize(
    ("patterns", "canary", "rest"),
    [
        (("b1",), ["b1"], ["a1", "a2", "b2"]),
        (("right",), ["a2", "b2"], ["a1", "b1"]),
        (("left[0]", "b2"), ["a1", "b2"], ["a2", "b1"]),
        (("all,!right",), ["a1", "b1"], ["a2", "b2"]),
    ],
)
def test_canaries_by_pattern(patterns: tuple[str, ...], canary: list[str], rest: list[str]) -> None:
    first, second = waves_of(spec(canary_hosts=patterns), HOSTS)
    assert (list(first.hosts), list(second.hosts)) == (canary, rest)
    assert first.name == "canary"


@pytest.mark.parametrize("patterns", [("c9",), ("middle",), ("a1,!a1",)])
def test_a_canary_that_means_no_device_is_an_error(patterns: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="canary"):
        waves_of(spec(canary_hosts=patterns), HOSTS)


def test_without_rollout_all_are_one_wave() -> None:
    assert waves_of(None, HOSTS) == (Wave("1", ("a1", "a2", "b1", "b2")),)


# Of 10 devices: outcomes (f failed, u unreachable, r refused, . not yet), the rest changed.
JUDGED = [
    ("", {}, "go", ""),
    ("f", {}, "stop", "1 of 10 devices failed; the limit is 0"),
    ("r", {}, "stop", "1 of 10 devices failed; the limit is 0"),
    ("u", {}, "stop", "1 of 10 devices were unreachable; the limit is 0"),
    ("f", {"max_failed": "1"}, "go", ""),
    ("ff", {"max_failed": "1"}, "stop", "2 of 10 devices failed; the limit is 1"),
    ("ff", {"max_failed": "19%"}, "stop", "2 of 10 devices failed; the limit is 1 (19%)"),
    ("ff", {"max_failed": "20%"}, "go", ""),
    ("u", {"max_failed": "10"}, "stop", "1 of 10 devices were unreachable; the limit is 0"),
    ("uu", {"max_unreachable": "2"}, "go", ""),
    ("fu", {"max_unreachable": "2"}, "stop", "1 of 10 devices failed; the limit is 0"),
    ("fu", {}, "stop", ("1 of 10 devices failed; the limit is 0; 1 of 10 devices were "
    "unreachable; the limit is 0")),
    ("ff........", {}, "stop", "2 of 10 devices failed"),
    ("f.........", {"max_failed": "1"}, "go", ""),
    ("ffffffffff", {"max_failed": "100%"}, "stop", "none of 10 devices succeeded (10 failed)"),
    ("uuuuuuuuuu", {"max_unreachable": "10"}, "stop", "of 10 devices succeeded (10 unreachable)"),
    ("fffffuuuuu", {"on_fail": "continue"}, "stop", "of 10 devices succeeded (5 failed, 5 unr"),
    ("fffffffff.", {"max_failed": "100%"}, "go", ""),
    ("fffffffff", {"on_fail": "continue"}, "go", "9 of 10 devices failed; the limit is 0"),
    ("f", {"on_fail": "rollback"}, "rollback", "1 of 10 devices failed"),
]  # fmt: skip


@pytest.mark.parametrize(("shorthand", "rules", "word", "text"), JUDGED)
def test_judge(shorthand: str, rules: dict[str, str], word: str, text: str) -> None:
    wave = Wave("1", tuple(names(10)))
    meaning = {"f": "failed", "u": "unreachable", "r": "refused", ".": "", "c": "changed"}
    outcomes = dict(
        zip(wave.hosts, (meaning[one] for one in shorthand.ljust(10, "c")), strict=True)
    )
    verdict = judge(wave, spec(**rules), tally(wave, outcomes))
    assert verdict.word == word
    assert text in verdict.text
    assert bool(verdict.text) == bool(text)


@pytest.mark.parametrize("outcome", ["failed", "unreachable"])
def test_nothing_may_go_wrong_in_the_canary(outcome: str) -> None:
    rules = spec(max_failed="100%", max_unreachable="100%")
    outcomes = {"d001": outcome, "d002": "changed"}
    canary, wave = Wave("canary", ("d001", "d002")), Wave("1", ("d001", "d002"))
    assert judge(canary, rules, tally(canary, outcomes)).word == "stop"
    assert judge(wave, rules, tally(wave, outcomes)).word == "go"
    assert judge(wave, ALL_AT_ONCE, tally(wave, outcomes)).word == "go"


@pytest.mark.parametrize(
    "text", ["", "%", "-1", "1.5", "101%", "5 boards", "\u0661\u0660%", "1e3", "0x3"]
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(InputError):
        Amount.parse(text)


@given(st.integers(0, 10_000), st.integers(0, 100_000))
def test_rounding(total: int, thousandths: int) -> None:
    share = Amount.parse(f"{thousandths // 1000}.{thousandths % 1000:03}%")
    exact = thousandths * total
    assert share.of(total) == exact // 100_000
    assert share.of(total, up=True) == -(-exact // 100_000)
    assert Amount.parse(str(share)) == share
