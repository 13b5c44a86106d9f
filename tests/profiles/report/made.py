"""Runs of a fleet, made up with a fixed seed: no number is a board's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from fleet.model.conditions import Conditions, Sample
from fleet.model.record import Metrics, Op, Record
from tests.profiles.compare.made import NEW, OLD, record

BUILDS = ("2.49.0.260601090000", OLD, NEW)
CHIPS = ("QCS9075", "QCS8550", "QCS6490")
START = datetime(2026, 9, 1, 8, 0, tzinfo=UTC)
_OPS = (("MatMul", 410), ("Softmax", 160), ("LayerNorm", 95), ("Conv2d", 80), ("Add", 42),
        ("Gather", 31), ("Transpose", 24), ("Mul", 18), ("Reshape", 7), ("Cast", 5))  # fmt: skip


def fleet(
    boards: int = 50,
    repeats: int = 20,
    runs: int = 1,
    seed: int = 7,
    *,
    emulated: bool = False,
    ops: bool = True,
    sustained: int = 0,
) -> list[Record]:
    """`runs` runs of so many boards, a week apart; a few repeats do not count.

    `sustained`: so many boards warm up and slow down from repeat to repeat in the last run.
    """
    rng = np.random.default_rng(seed)
    found = []
    level = 10 * np.exp(0.05 * rng.standard_normal(boards))
    for run in range(runs):
        build = BUILDS[min(run * len(BUILDS) // max(runs, 1), len(BUILDS) - 1)] if runs > 1 else NEW
        gain = 1 + 0.04 * BUILDS.index(build)
        for board in range(boards):
            hot = board < sustained and run == runs - 1
            found += [
                _one(rng, (run, board, n), build, float(level[board] * gain), hot=hot,
                     emulated=emulated, ops=ops)
                for n in range(repeats)
            ]  # fmt: skip
    return found


def _one(
    rng: np.random.Generator,
    place: tuple[int, int, int],
    build: str,
    level: float,
    *,
    hot: bool,
    emulated: bool,
    ops: bool,
) -> Record:
    run, board, n = place
    began = START + timedelta(days=7 * run, seconds=40 * n + board)
    heat = 78 - 38 * float(np.exp(-n / 7)) if hot else 44 + float(rng.normal(0, 1.2))
    slow = 1 - 0.26 / (1 + float(np.exp(-(heat - 70) / 2.5))) if hot else 1.0
    noise = np.exp(0.012 * rng.standard_normal(4))
    metrics = Metrics(
        init_ms=round(4060 * float(noise[0]), 1),
        ttft_ms=round(183.5 * 10 / level * float(noise[1]), 2),
        prompt_tokens=29, prompt_tps=round(15.8 * level * float(noise[2]), 2), generated_tokens=31,
        decode_tps=round(level * slow * float(noise[3]), 3),
    )  # fmt: skip
    looks = tuple(Sample(2.0 * k, {"nspss-0": round(heat + 0.2 * k, 1)}) for k in range(4))
    around = Conditions(
        before=Sample(-0.5, {"nspss-0": round(heat - 0.5, 1)}, {"cpu:policy0": 2.4e9}, 0.2),
        during=looks, after=Sample(9, {"nspss-0": round(heat + 1, 1)}),
        governors={"cpu:policy0": "performance"}, power={"usb": "online"}, cost=0.004,
    )  # fmt: skip
    bad = board % 9 == 4 and n % 7 == 3
    operations = tuple(
        Op(name, cost * float(noise[0]), "us", name, "1x64", "cpu" if name == "Gather" else "npu")
        for name, cost in _OPS
    ) if ops else ()  # fmt: skip
    stamp = (START + timedelta(days=7 * run)).strftime("%Y%m%d-%H%M%S")
    return record(
        n, f"evk-{board + 1:02}", run_id=f"{stamp}-{run:06x}", metrics=metrics, ops=operations,
        started=began.strftime("%Y-%m-%dT%H:%M:%SZ"), origin={"build_id": build},
        release=f"{BUILDS.index(build) + 1}c" * 8, name="nemotron-4b", conditions=around,
        facts={"soc": {"chip": CHIPS[board * len(CHIPS) // 50 % len(CHIPS)]}, "os_id": "ubuntu",
               "os_version": "24.04", "kernel": "6.8.0-1022"},
        problems=("token-limit: 31 of 31",) if bad else (), emulated=emulated,
        marks=("throttled: cpu:policy0",) if hot and heat > 70 else (),
    )  # fmt: skip
