"""Rungs with whole runs: a dialog, its limit, the SDK's program, ONNX Runtime, clocks, heat."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from fleet.data import shipped
from fleet.doctor.session import tiny_context
from fleet.engine.run.measuring.heat import matching
from fleet.engine.states import facts_of
from fleet.model.errors import RuntimeStoreError
from fleet.model.playbook import RunSpec
from fleet.runners.base import Outcome
from fleet.selftest.bench import RUN_SECONDS, Bench
from fleet.selftest.ladder import RungVerdict, Undecided, judge

_LOAD_SECONDS = 20.0
_WARMER = 0.5  # °C
_FASTER = 0.95  # share of the default's time
_FLOATS = 8 * 64  # of the input of the tiny context, all zero
_ORT: dict[str, Any] = {
    "inputs": {"x": "x.npy"},
    "reference": {"out": "out.npy"},
    "tolerance": 0.051,  # one quantum of the output is 0.05
}


def _verdict(outcome: Outcome, words: str, expected: str, observed: str) -> RungVerdict:
    return RungVerdict(
        not outcome.problems, expected, "; ".join(outcome.problems) or observed, words
    )


@judge("genie")
def genie(bench: Bench) -> RungVerdict:
    """Ask a question to which the tiny model knows the answer."""
    bench.v73()
    built, manifest, _ = bench.genie
    outcome, words = bench.run(built, manifest, 3)
    return _verdict(outcome, words, "an answer", f"{outcome.text!r}")


@judge("token-limit")
def token_limit(bench: Bench) -> RungVerdict:
    """Ask again with a limit of two tokens. A libGenie that refuses the key runs without it."""
    built, manifest, _ = bench.genie
    run = RunSpec("genie", "What is fleet?", 2, timeout=RUN_SECONDS, token_limit_counts=True)
    outcome, words = bench.run(built, manifest, 4, run)
    refused = "no-token-limit" in outcome.marks
    observed = "refused" if refused else f"{outcome.metrics.generated_tokens} tokens"
    holds = not refused and outcome.finish == "token-limit" and not outcome.problems
    return RungVerdict(holds, "2 tokens", "; ".join(outcome.problems) or observed, words)


def _net_run(bench: Bench, number: int, **options: object) -> tuple[Outcome, str]:
    bundle = bench.work / "net-run"
    bundle.mkdir(exist_ok=True)
    arch = "v73" if bench.facts.emulated else bench.facts.soc.hexagon_arch
    (bundle / "tiny.bin").write_bytes(tiny_context(arch))
    (bundle / "x.raw").write_bytes(bytes(4 * _FLOATS))
    settings = {"inputs": [["x.raw"]], "num_inferences": 50, **options}
    run = RunSpec("qnn-net-run", timeout=RUN_SECONDS, options=settings)
    built = bench.builder(bundle, "qnn", run)
    manifest = bench.manifest(built)
    bench.bring(manifest)
    return bench.run(built, manifest, number)


@judge("net-run")
def net_run(bench: Bench) -> RungVerdict:
    """Collect a detailed profile, read by the viewer on the device or here."""
    outcome, words = _net_run(bench, 5, profiling="detailed")
    observed = f"{len(outcome.metrics.others)} numbers, {len(outcome.ops)} operations"
    verdict = _verdict(outcome, words, "numbers and operations", observed)
    return replace(verdict, holds=verdict.holds and bool(outcome.ops))


@judge("performance")
def performance(bench: Bench) -> RungVerdict:
    """Compare the speed with a configuration, with a flag, and by default."""
    bench.emulated()
    ways: dict[str, dict[str, object]] = {
        "configuration": {"perf_profile": "burst"},
        "default": {"perf_profile": "default"},
        "flag": {"perf_profile": "default", "extra": ["--perf_profile", "burst"]},
    }
    times, words = {}, ""
    for number, (name, options) in enumerate(ways.items(), 6):
        outcome, output = _net_run(bench, number, **options)
        words += f"# {name}\n{output}\n"
        micros = [v.value for k, v in outcome.metrics.others.items() if "execute" in k]
        times[name] = min(micros, default=float("nan"))
    observed = ", ".join(f"{name} {value:g} µs" for name, value in times.items())
    holds = times["configuration"] < times["default"] * _FASTER
    return RungVerdict(
        holds,
        "the model runs faster with the burst configuration than with the default configuration",
        observed,
        words,
    )


@judge("ort")
def ort(bench: Bench) -> RungVerdict:
    """Compare fleet's EPContext model with the reference evaluator of ONNX."""
    bench.v73()
    run = RunSpec("ort", timeout=RUN_SECONDS, options=_ORT)
    built = bench.builder(shipped("assets/tiny-ort"), "ort", run)
    if built.python_of(bench.facts) is None:
        raise Undecided("no-python", "python3")
    try:
        manifest = bench.manifest(built)
    except RuntimeStoreError as error:
        raise Undecided("no-packages", error.message) from error
    bench.bring(manifest)
    outcome, words = bench.run(built, manifest, 9)
    return _verdict(outcome, words, "within one quantum of the reference", "within one quantum")


@judge("zones")
def zones(bench: Bench) -> RungVerdict:
    """Run dialogs one after another, then read the zones of the compute DSP again."""
    bench.emulated()
    before = {zone.type: zone.celsius for zone in bench.facts.thermal}
    end = time.monotonic() + _LOAD_SECONDS
    while time.monotonic() < end:
        bench.run(bench.genie[0], bench.genie[1], 10)
    after = {zone.type: zone.celsius for zone in facts_of(bench.session).thermal}
    rows = {name: (before.get(name), after.get(name)) for name in matching(after)}
    warmer = [
        n for n, (a, b) in rows.items() if a is not None and b is not None and b - a >= _WARMER
    ]
    words = "\n".join(f"{name} {a} {b}" for name, (a, b) in rows.items())
    return RungVerdict(
        bool(warmer),
        "at least one thermal zone gets warmer during the runs",
        ", ".join(warmer) or "none",
        words,
    )
