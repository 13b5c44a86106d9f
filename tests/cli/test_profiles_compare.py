"""`fleet profiles compare` as a person and a CI job use it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from fleet.cli import output
from fleet.cli.main import main
from fleet.engine.rollout.claim import NAME as JOURNAL
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import RunHeader
from fleet.engine.rollout.waves import Wave
from fleet.model.record import Record
from fleet.profiles.runs import RunStore
from tests.profiles.compare.made import newer, noisy, op, repeats, save, separate


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    a = separate(noisy(10, 12, 1), ops=(op("conv", 10),))
    b = newer(separate(noisy(9, 12, 2), ops=(op("conv", 12),)))
    return str(save(tmp_path / "a.jsonl", a)), str(save(tmp_path / "b.jsonl", b))


def fleet(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fleet", "profiles", "compare", *words])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_a_table_for_people(
    sides: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet(monkeypatch, *sides) == 0
    text = capsys.readouterr().out
    for part in ("Compared on purpose (--vary)", "runtime: A 2.50.0.260828, B 2.51.0.260929",
                 "slower", "emulated", "operations, in us: 10 → 12 (+20.0 %)"):  # fmt: skip
        assert part in text, part


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns."""
    buffer = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    made = Console(file=buffer, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", made)
    return buffer


def words_of(text: str) -> set[str]:
    lines = text.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("─"))
    table = lines[rule - 2 :]
    assert max(map(len, table)) <= 80
    return set(" ".join(table).split())


@pytest.mark.parametrize("host", ["evk-01", "kitchen-iq9075-07"])
def test_eighty_columns_break_no_word(
    screen: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    host: str,
) -> None:
    a = save(tmp_path / "a.jsonl", separate(noisy(10, 12, 1), host=host))
    b = save(tmp_path / "b.jsonl", newer(separate(noisy(9, 12, 2), host=host)))
    assert fleet(monkeypatch, str(a), str(b)) == 0
    text = screen.getvalue()
    words = {host, "change", "interval", "verdict", "slower", "10.07", "8.989", "emulated"}
    assert words <= words_of(text), text
    assert "values: A 12, B 12" in text


def test_eighty_columns_name_the_rows_of_what_stands_below(
    screen: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two boards, two metrics: neither can make room for the other."""
    sides: list[list[Record]] = [[], []]
    for host in ("kitchen-iq9075-07", "kitchen-iq9075-08"):
        for side, middle in zip(sides, (10, 9), strict=True):
            side += [
                replace(made, metrics=replace(made.metrics, prompt_tps=100.0 + made.repeat))
                for made in separate(noisy(middle, 12, 1), host=host)
            ]
    a = save(tmp_path / "a.jsonl", sides[0])
    b = save(tmp_path / "b.jsonl", newer(sides[1]))
    assert fleet(monkeypatch, str(a), str(b)) == 0
    words = words_of(text := screen.getvalue())
    assert {"kitchen-iq9075-07", "kitchen-iq9075-08", "interval", "prompt", "gen"} <= words
    assert {"10.07", "9.064", "100"} <= words, text
    assert "(emulated no)" in text


def test_eighty_columns_keep_the_figures_where_a_verdict_is_long(
    screen: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One `fleet run` a side, as after a deploy: no verdict, with its reason."""
    a = save(tmp_path / "a.jsonl", repeats(noisy(10, 5, 1)))
    b = save(tmp_path / "b.jsonl", newer(repeats(noisy(9, 5, 2))))
    assert fleet(monkeypatch, str(a), str(b)) == 0
    words = words_of(text := screen.getvalue())
    assert {"A", "B", "10.07", "8.926", "change"} <= words, text
    assert "values: A 5 in 1 run, B 5 in 1 run" in text
    assert "each" in text.partition("values:")[2], "why stands below the table"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--fail-if", "decode_tps<-5%"], 1),
        (["--fail-if", "decode_tps<-50%"], 0),
        (["--fail-if", "slower"], 1),
        (["--fail-if", "prompt_tps<-5%"], 4),
        (["--fail-if", "prompt_tps<-5%", "--fail-if", "slower"], 1),
        (["--metric", "init_ms", "--fail-if", "decode_tps<-5%"], 1),
        (["--strict"], 0),
        (["--fail-if", "decode_tps-5%"], 2),
        (["--vary", "weather"], 2),
        (["--metric", "tttft_ms"], 2),
        (["--margin", "1"], 2),
        (["--matrix"], 2),
    ],
)
def test_exit_codes(
    words: list[str], code: int, sides: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet(monkeypatch, *sides, *words) == code


def test_strict_refuses_what_differs_and_what_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a = separate(noisy(10, 12, 1))
    other = [replace(one, prompt_sha256="", facts={**one.facts, "kernel": "7"}) for one in newer(a)]
    files = str(save(tmp_path / "a.jsonl", a)), str(save(tmp_path / "b.jsonl", other))
    assert fleet(monkeypatch, *files) == 0
    capsys.readouterr()
    assert fleet(monkeypatch, *files, "--strict", "--fail-if", "faster") == 4
    said = capsys.readouterr().err
    assert "system" in said
    assert "prompt" in said
    junit = tmp_path / "j.xml"
    assert fleet(monkeypatch, *files, "--strict", "--fail-if", "faster", "--junit", str(junit)) == 4
    assert ET.parse(junit).find("testsuite").attrib["errors"] == "1"  # type: ignore[union-attr]


def test_json_and_files(
    sides: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    junit, page = tmp_path / "j.xml", tmp_path / "p.md"
    words = ["--json", "--fail-if", "slower", "--junit", str(junit), "--markdown", str(page)]
    assert fleet(monkeypatch, *sides, *words) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == 1
    assert data["gates"][0]["outcome"] == "tripped"
    assert data["rows"][0]["verdict"] == "slower"
    assert ET.parse(junit).getroot().tag == "testsuites"
    assert page.read_text().startswith("### Profiles")
    assert not list(tmp_path.glob("*.part"))


def test_a_run_of_the_store_and_a_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(tmp_path / "runs")
    for one in newer(separate(noisy(10, 6, 1))):
        store.save(store.folder("20261102-100000-bbbbbb", one.host, one.repeat, warmup=False), one)
    words = ("last", "--store", str(store.root), "--matrix", "--metric", "decode_tps")
    assert fleet(monkeypatch, *words) == 0
    assert "2.51.0.260929" in capsys.readouterr().out
    assert fleet(monkeypatch, *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "decode_tps"


def test_hostile_text_of_a_device_is_only_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = "evk\x1b[31m[bold]x[/bold]"
    made = separate(noisy(10, 6, 1), host=bad, ops=(op(bad, 1),))
    file = str(save(tmp_path / "a.jsonl", made))
    assert fleet(monkeypatch, file, file) == 0
    text = capsys.readouterr().out
    assert "\x1b[31m" not in text
    assert "[bold]x" in text


def test_other_commands_do_not_pay_for_numpy() -> None:
    code = "import sys, fleet.cli.main as m; m.build('profiles'); print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_last_run_against_the_one_before_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`prev` and `last~N` are runs of the name of the last one."""
    store = RunStore(tmp_path / "runs")
    for hour, (name, rate) in enumerate((("llm", 8), ("llm", 9), ("other", 1), ("llm", 10))):
        for made in repeats([rate] * 6, name=name):
            one = replace(made, run_id=f"run-{hour}", started=f"2026-11-01T1{hour}:00:00Z")
            store.save(store.folder(one.run_id, one.host, one.repeat, warmup=False), one)
    where = ("--store", str(store.root), "--json")
    assert fleet(monkeypatch, *where) == 0
    data = json.loads(capsys.readouterr().out)
    assert [data[side]["selection"] for side in "ab"] == ["prev", "last"]
    assert data["rows"][0]["difference"]["mid_a"] == 9
    assert fleet(monkeypatch, "last~2", "last", *where) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["difference"]["mid_a"] == 8


def deployed(side: list[Record], playbook: Path, inventory: Path) -> None:
    """The journal of a deploy for the run of these records."""
    for run_id in {one.run_id for one in side}:
        waves, inputs = (Wave("1", ("evk-01",)),), Inputs(playbook, inventory)
        header = RunHeader(run=run_id, name="llm", waves=waves, inputs=inputs)
        Journal.begin(RunStore().root / run_id / JOURNAL, header).close()


def test_the_next_command_names_what_is_known_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    a, b = repeats(noisy(10, 5, 1)), newer(repeats(noisy(9, 5, 2)), "20261101-110000-bbbbbb")
    files = str(save(tmp_path / "a.jsonl", a)), str(save(tmp_path / "b.jsonl", b))

    def said() -> str:
        assert fleet(monkeypatch, *files) == 0
        return capsys.readouterr().err.partition("next: ")[2].partition("\n")[0]

    assert said() == "fleet ab -h (shows how to compare two playbooks, bundles or releases)"
    book = tmp_path / "book.yaml"
    book.write_text("name: llm\n")
    deployed(b, book, tmp_path / "boards.yaml")
    turns = "-i boards.yaml -l evk-01 (runs A and B alternately)"
    ids = f"{'r1' * 8} {'r2' * 8}"
    assert said() == f"fleet ab {ids} --playbook book.yaml {turns}"
    other = tmp_path / "other.yaml"
    other.write_text("name: llm\n")
    deployed(a, other, tmp_path / "boards.yaml")
    assert said() == f"fleet ab other.yaml book.yaml {turns}"
