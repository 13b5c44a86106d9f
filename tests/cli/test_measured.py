"""Tables of runs: which numbers they have, and that a terminal of 80 columns shows them whole."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from fleet.cli import output
from fleet.cli.measured import show_records
from fleet.cli.profiles import show_pictures
from fleet.model.metrics import rate_of
from fleet.model.plain import to_plain
from fleet.model.record import Measure, Metrics, Record
from fleet.profiles.formats import executorch, qnn
from fleet.profiles.formats.base import Profile
from fleet.runners import Ended
from fleet.runners.registry import OWN
from tests.profiles.records import record
from tests.runners.test_ort import kit

REAL = Path(__file__).parents[1] / "profiles" / "real"
TOKENS = Metrics(
    init_ms=4060.0, ttft_ms=183.5, prompt_tps=158.05, decode_tps=10.03, generated_tokens=31
)


def net_run(level: str = "detailed") -> Metrics:
    """Of a real run of qnn-net-run: 51.6, 98.9 and 87.4 ms, 12.4 inferences a second."""
    texts = [(REAL / "viewer" / f"{level}.{kind}").read_text("utf-8") for kind in ("json", "csv")]
    return qnn.merged(*texts).metrics


def executor() -> Metrics:
    """Of a real run of qnn_executor_runner: three inferences in 5.505 ms."""
    text = (REAL / "executorch" / "stderr_profile0.txt").read_text("utf-8")
    profile = executorch.read_log(text)
    assert isinstance(profile, Profile)
    return profile.metrics


def ort() -> Metrics:
    """What fleet_ort.py leaves: a session and ten runs."""
    runs = [2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 55.0]
    said = {"session_ms": 244.6, "run_ms": 5.5, "runs_ms": runs, "outputs": {}}
    ended = Ended(0, b"", {"outcome.json": json.dumps(said).encode()})
    one = kit("m.onnx")
    return OWN["ort"].read(OWN["ort"].start(one), one, ended).metrics


def runs(metrics: Metrics, runner: str, host: str = "lab001", **changes: Any) -> list[Record]:
    made = replace(record(host=host, metrics=metrics, runner=runner, name=runner), **changes)
    return [replace(made, repeat=turn) for turn in range(3)]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns."""
    buffer = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = Console(file=buffer, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", screen)
    return buffer


def shown(records: list[Record]) -> None:
    show_records("run x", [to_plain(made) for made in records])


def rows(text: str) -> dict[str, str]:
    """Heads and cells of the first row, as a terminal shows them: by the columns of the rule."""
    lines = text.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("─"))
    spans = [found.span() for found in re.finditer("─+", lines[rule])]
    heads = [" ".join(line[a:b].strip() for line in lines[1:rule]).strip() for a, b in spans]
    return dict(zip(heads, (lines[rule + 1][a:b].strip() for a, b in spans), strict=True))


@pytest.mark.parametrize(
    ("metrics", "runner", "wanted"),
    [
        (net_run(), "qnn-net-run", {"latency ms": "87.36", "p90 ms": "98.94", "inf/s": "12.4"}),
        (net_run("client"), "qnn-net-run", {"latency ms": "17.98", "inf/s": "54.8"}),
        (executor(), "executorch", {"latency ms": "1.83", "inf/s": "545.0"}),
        (
            ort(),
            "ort",
            {"init ms": "244.6", "latency ms": "5.50", "p90 ms": "9.00", "inf/s": "100.0"},
        ),
    ],
)
def test_a_network_shows_latency_and_throughput(
    screen: io.StringIO, metrics: Metrics, runner: str, wanted: dict[str, str]
) -> None:
    shown(runs(metrics, runner))
    said = rows(screen.getvalue())
    assert {name: said[name] for name in wanted} == wanted
    assert said["emulated"] == "yes"
    assert said["runs"] == "3/3"
    assert "tok" not in screen.getvalue(), "no columns of tokens"
    known = {"device", "chip", "QAIRT", "runs", "emulated"}
    assert {name for name, cell in said.items() if cell != "-"} <= known | set(wanted)


def test_tokens_have_their_columns(screen: io.StringIO) -> None:
    shown(runs(TOKENS, "genie"))
    said = rows(screen.getvalue())
    wanted = {"init ms": "4060.0", "TTFT ms": "183.5", "prompt tok/s": "158.05",
              "gen tok/s": "10.03", "tokens": "31", "emulated": "yes"}  # fmt: skip
    assert {name: said[name] for name in wanted} == wanted
    assert "latency" not in screen.getvalue()


@pytest.mark.parametrize("host", ["lab001", "evk-iq9-01", "kitchen-iq9075-07"])
@pytest.mark.parametrize("kind", ["network", "tokens", "both", "nothing"])
def test_eighty_columns_break_no_word(
    screen: io.StringIO, capsys: pytest.CaptureFixture[str], host: str, kind: str
) -> None:
    network, tokens = runs(net_run(), "qnn-net-run", host), runs(TOKENS, "genie", host)
    failed = runs(Metrics(), "exec", host, problems=("failed: exit status 1",))
    shown({"network": network, "tokens": tokens, "both": [*network, *tokens]}.get(kind, failed))
    text = screen.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    words = {host, "runs", "emulated", "yes"}
    words |= {"latency", "p90", "87.36", "98.94"} if kind in {"network", "both"} else set()
    words |= {"TTFT", "prompt", "tok/s", "158.05"} if kind in {"tokens", "both"} else set()
    assert words <= set(text.split())
    said = text + capsys.readouterr().err
    for fact in ("QCS9075", "2.51.0.260929"):
        assert fact in said, "what has no room in the table stands below it"


def test_the_same_remark_of_many_runs_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cut: dict[str, Any] = {"marks": ("cut: the output reached the token limit of 4",)}
    late: dict[str, Any] = {"problems": ("cut: the program did not end within 5 s",)}
    marked = [one for host in ("lab001", "lab002") for one in runs(TOKENS, "genie", host, **cut)]
    one = replace(record(host="lab003", metrics=TOKENS, runner="genie"), repeat=7, **cut)
    warm = [replace(one, host="lab001", warmup=True, repeat=0) for one in marked[:1]]
    bad = runs(TOKENS, "genie", "lab004", **late)
    shown([*warm, *marked, one, *bad[:1], *bad[2:]])
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "token limit" in line] == [
        f"lab001: warm-up 1, runs 1 to 3; lab002: runs 1 to 3; lab003: run 8: {cut['marks'][0]}"
    ]
    assert "lab004: runs 1, 3 are not valid: the program did not end within 5 s" in lines
    assert len([line for line in lines if line.startswith("next:")]) == 1


def test_a_wide_terminal_and_a_pipe_have_all_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(runs(net_run(), "qnn-net-run"))
    head = capsys.readouterr().out.splitlines()[1]
    assert [cell.strip() for cell in head.split("|")] == [
        "device", "chip", "QAIRT", "runs", "latency ms", "p90 ms", "inf/s", "emulated",
    ]  # fmt: skip


def test_what_the_table_says_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    shown(runs(ort(), "ort"))
    said = capsys.readouterr()
    also = next(line for line in said.err.splitlines() if ", other metrics: " in line)
    assert "run_max_ms 55 ms" in also
    assert "inferences 10" in also
    assert not re.search(r"\b(run_ms|run_p90_ms|ips) ", also)


def test_a_mean_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown(runs(executor(), "executorch"))
    assert (
        "lab001: the program reports only the mean time of a run, not the time of each inference"
        in (capsys.readouterr().err)
    )


def test_a_mean_of_the_program_is_said_to_be_one(
    screen: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """qnn-net-run with `client` gives its own clock alone, whose mean is of all inferences."""
    for metrics, mean in ((net_run("client"), True), (executor(), True), (net_run(), False)):
        shown(runs(metrics, "qnn-net-run"))
        assert ("reports only the mean time of a run" in capsys.readouterr().err) is mean, metrics


def test_what_failed_has_no_empty_columns(screen: io.StringIO) -> None:
    shown(runs(Metrics(), "ort", problems=("failed: x",)))
    assert set(rows(screen.getvalue())) <= {"device", "chip", "QAIRT", "runs", "emulated"}


def test_the_picture_of_a_network_is_its_latency(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_pictures(runs(ort(), "ort"))
    assert "lab001 run_ms ms" in capsys.readouterr().out
    show_pictures(runs(net_run(), "qnn-net-run"))
    assert "lab001 execute_median_us us" in capsys.readouterr().out


def test_numbers_in_json_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ort().others
    assert others["run_ms"] == Measure(5.5, "ms")
    assert (others["run_min_ms"], others["run_max_ms"]) == (Measure(1, "ms"), Measure(55, "ms"))
    assert others["run_p90_ms"] == Measure(9, "ms")
    assert others["ips"] == Measure(100, "inf/s")


@pytest.mark.parametrize(
    ("metrics", "rate"),
    [
        (TOKENS, "10.03 tok/s"),
        (replace(TOKENS, decode_tps=0.0), "158.05 prompt tok/s"),  # its prompt filled the context
        (Metrics(), ""),
    ],
)
def test_the_rate_of_a_release(metrics: Metrics, rate: str) -> None:
    found = rate_of([to_plain(one) | {"counts": True} for one in runs(metrics, "genie")])
    assert str(found or "") == rate
