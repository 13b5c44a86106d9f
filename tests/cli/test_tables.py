"""Tables at 80, 100 and 160 columns: no folded word, nothing over the edge, few lines."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from fleet.cli import output
from fleet.cli.demo import LONGER
from fleet.cli.doctor_view import show as show_doctor
from fleet.cli.facts import _show as show_facts
from fleet.cli.main import build
from fleet.cli.output import laid_out, middle
from fleet.cli.results import show_devices, show_plans
from fleet.cli.rollout_options import show_waves
from fleet.cli.status import _show_status
from fleet.engine.deploy.releases import _whole
from fleet.engine.pool import DeviceResult
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import PlanLine, RunHeader, StepLine
from fleet.engine.rollout.waves import Wave
from fleet.engine.status import Deployed, DeviceStatus, add_history
from fleet.model.diagnosis import Check, Diagnosis, Evidence, Ranked
from fleet.model.facts import DeviceNode, Disk, Facts, Soc, ThermalZone, Tools
from fleet.model.files import FileRef
from fleet.model.finding import Finding
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.metrics import Rate
from fleet.model.plan import Blob, DevicePlan, SendBlobs, StageRelease, SwitchRelease
from fleet.model.record import Metrics
from fleet.model.rollout import RolloutSpec
from fleet.ops.lease import NOBODY
from fleet.profiles.runs import RunStore
from fleet.triage.knowledge import knowledge
from tests.profiles.records import record

Screen = Callable[[int], io.StringIO]
WIDTHS = (80, 100, 160)
HOSTS = [Host(f"evk-iq9-bench-rack-b-{n:03}") for n in range(1, 41)]  # 24 characters
ID = "0123456789abcdef"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal of so many columns, for results and remarks."""
    monkeypatch.setenv("FORCE_COLOR", "1")

    def made(width: int) -> io.StringIO:
        buffer = io.StringIO()
        for name in ("console", "errors"):
            soft = name == "errors"
            console = Console(file=buffer, width=width, force_terminal=True, color_system=None,
                              highlight=False, soft_wrap=soft)  # fmt: skip
            monkeypatch.setattr(output, name, console)
        return buffer

    return made


def fits(text: str, width: int, words: set[str]) -> list[str]:
    """The lines: none is too long, and each word is whole, or says where it was cut."""
    lines = text.splitlines()
    assert max(map(len, lines)) <= width, max(lines, key=len)
    said = set(re.findall(r"[^\s(),]+", text))
    for word in words - said:
        start, end = word[:2], word[-2:]
        cut = any("…" in item and item.startswith(start) and item.endswith(end) for item in said)
        assert cut, f"{word} is folded in\n{text}"
    return lines


def test_words_are_folded_between_them_and_what_is_pasted_is_not(screen: Screen) -> None:
    words = "the board refuses because " * 9
    buffer = screen(80)
    output.prose(f"  - {words}")
    output.prose(f"  [bold]cause[/]  {words}", markup=True)
    output.note(words)
    lines = buffer.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(buffer.getvalue().split()).count("refuses") == 27
    assert all(line.startswith(" " * 9) for line in lines[5:7])
    buffer = screen(80)
    resume, long = (
        "fleet deploy --resume 20261101-100000-aaaaaa",
        "fleet run --stream --limit " + "x" * 70,
    )
    output.advise(f"{words}; next: {resume}; then {long} (tries again)")
    output.note("set `a key:` of playbooks/boards.yaml, which is too long for a line: " + words)
    lines = [line.strip() for line in buffer.getvalue().splitlines()]
    assert sum(f"{resume};" in line for line in lines) == 1
    (alone,) = [line for line in lines if len(line) > 80]
    assert alone.startswith(long), "it stands alone, for the terminal to break"
    assert "tries" not in alone
    assert any("`a key:`" in line for line in lines)
    buffer = screen(80)
    output.note(f"  {LONGER}")
    assert buffer.getvalue().strip() == LONGER, "a line end in it would end the command"
    buffer = screen(80)
    output.say(f"    # {words}")
    assert len(buffer.getvalue().splitlines()) == 1


def test_a_column_without_name_and_words_is_no_hole(screen: Screen) -> None:
    for word, shown in (("", False), ("see below", True)):
        buffer = screen(80)
        output.table(
            "run", ("device", "", "time"), [("evk-01", word, "1 s"), ("evk-02", "", "2 s")]
        )
        assert ("see below" in buffer.getvalue()) == shown
        assert ("evk-01  1 s" in buffer.getvalue()) == (not shown)


def test_any_table_fits() -> None:
    """All tables go through one function, so this holds for those of every command."""
    dice = random.Random(26)
    for _ in range(80):
        width, columns, count = dice.choice(WIDTHS), dice.randint(1, 11), dice.randint(1, 6)
        rows = [[words(dice) for _ in range(columns)] for _ in range(count)]
        heads = [f"head{n} of it"[: dice.randint(2, 11)].strip() for n in range(columns)]
        drops = dice.sample(heads, dice.randint(0, columns - 1))
        made = laid_out("a title", heads, rows, room=width, drops=drops)
        text = "\n".join((*made.title, *made.heads, *made.rows, *made.below))
        shown = [cells for head, cells in zip(heads, zip(*rows, strict=True), strict=True)
                 if head not in drops]  # fmt: skip
        fits(text, width, {word for cells in shown for cell in cells for word in cell.split()})


def words(dice: random.Random) -> str:
    """A cell: a number, a name, or some words."""
    few = [dice.choice(("9.5", "evk-iq9-bench-rack-b-001", "prompt", "emulated", "refused",
                        "/opt/fleet/releases/nemotron/current"))
           for _ in range(dice.choice((1, 1, 1, 2, 9)))]  # fmt: skip
    return " ".join(few)


def test_ids_constants_and_what_has_no_room() -> None:
    rows = [[host.name, ID, "yes", f"{'x' * 30}{n}"] for n, host in enumerate(HOSTS)]
    made = laid_out("t", ("device", "id", "emulated", "x"), rows, room=60, drops=["emulated", "x"])
    assert made.title == ["t (emulated yes)"]
    assert made.rows[0].split() == [HOSTS[0].name, "01234567"]
    assert made.below == ["no room for: x (-o wide shows them)"]
    wide = laid_out("t", ("device", "id", "emulated", "x"), rows, room=None, drops=["emulated"])
    assert wide.title == ["t"]
    assert ID in wide.rows[0]
    assert middle(HOSTS[0].name, 12) == "evk-iq…b-001"


def facts(number: int) -> Facts:
    other = number == 7
    return Facts(
        os_name="Ubuntu 24.04.1 LTS", kernel="6.8.0-1040-qcom", libc="glibc", libc_version="2.39",
        machine="aarch64", lab=True,
        soc=Soc(chip="QCS9075", hexagon_arch="v73", model="Qualcomm IQ-9075 EVK"),
        nodes=(DeviceNode("/dev/fastrpc-cdsp", True, open_error="EACCES" if other else ""),),
        tools=Tools(python3="/usr/bin/python3", python3_version="3.10.4" if other else "3.12.3"),
        disk=Disk("/", available_bytes=(50 + number) * 10**9),
        thermal=(ThermalZone("a", "nspss-0", 41.0 + number),),
    )  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [3, 40])
def test_facts_are_a_row_a_board(screen: Screen, width: int, count: int) -> None:
    said = screen(width)
    show_facts({host.name: facts(n) for n, host in enumerate(HOSTS[:count])}, whole=False)
    names = {host.name for host in HOSTS[:count]}
    lines = fits(said.getvalue(), width, names)
    assert len(lines) <= count + 5
    assert "chip QCS9075" in " ".join(lines[:3]), "what all have is the title's"
    if count == 40:
        (other,) = [line for line in lines if HOSTS[7].name in line]
        assert "EACCES*" in other
        assert "3.10.4*" in other
        assert sum("*" in line for line in lines) == 2, "and the legend"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [3, 40])
def test_results_are_a_row_a_board(screen: Screen, width: int, count: int) -> None:
    said = screen(width)
    made = [
        replace(DeviceResult[None](host), outcome="changed", text=f"release {ID}, was nothing")
        for host in HOSTS[:count]
    ]
    show_devices("deploy nemotron", made)
    lines = fits(said.getvalue(), width, {host.name for host in HOSTS[:count]})
    assert "release 01234567" in said.getvalue()
    assert ID not in said.getvalue()
    assert len(lines) <= count + 4


def deployed(host: Host, **changes: Any) -> DeviceResult[DeviceStatus]:
    item = Deployed("nemotron", ID, "installed", 0, [ID], {"build_id": "2.51.0.260929181845"},
                    "2026-11-23T14:31:07Z", "jo@bench-workstation",
                    Rate(10.03, "tok/s"))  # fmt: skip
    value = DeviceStatus((replace(item, **changes),), "/o", 51 * 10**9, False, None, NOBODY)
    return DeviceResult(host, "ok", value=value)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [3, 40])
def test_status_says_when_by_whom_what_and_how_fast(screen: Screen, width: int, count: int) -> None:
    said = screen(width)
    made = [deployed(host) for host in HOSTS[:count]]
    made[1] = deployed(HOSTS[1], since=None, by=None, rate=None, state="damaged")
    _show_status(made)
    names = {host.name for host in HOSTS[:count]}
    lines = fits(said.getvalue(), width, names)
    assert len(lines) <= max(count + 5, 10)
    text = " ".join(said.getvalue().split())
    assert "01234567" in text
    assert ID not in text
    assert "2026-11-23 14:31Z" in text
    assert "10.03 tok/s" in text
    odd = next(line for line in lines if line.startswith(HOSTS[1].name))
    assert "damaged" in odd
    assert "unknown" in odd
    if width == 160:
        assert "jo@bench-workstation" in text


def test_what_this_workstation_knows_of_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who, from its journals; the rate, from its records. A release that came back has no who."""
    monkeypatch.setenv("FLEET_HOME", str(tmp_path))
    monkeypatch.setenv("FLEET_OWNER", "jo@desk")
    runs = RunStore()
    host, run_id = HOSTS[0].name, "20261101-100000-aaaaaa"
    journal = Journal.begin(
        runs.root / run_id / "journal.jsonl",
        RunHeader(run=run_id, name="tiny", waves=(Wave("1", (host,)),)),
    )
    journal.write(PlanLine(host=host, release=ID, device_kind="t v73", boot_id="b"))
    journal.write(StepLine(host=host, step="switch"))
    journal.close()
    for repeat in range(3):
        made = record(
            host=host, release=ID, repeat=repeat, metrics=Metrics(decode_tps=9.0 + repeat)
        )
        runs.save(runs.folder(run_id, host, repeat, warmup=False), made)
    for repeat in range(6):  # newer, of the release that a rollback left
        made = record(
            run_id="20261102-100000-bbbbbb", host=host, release="b", repeat=repeat,
            started=f"2026-11-02T10:00:0{repeat}Z", metrics=Metrics(decode_tps=5.0),
        )  # fmt: skip
        runs.save(runs.folder(made.run_id, host, repeat, warmup=False), made)
    results = [
        deployed(HOSTS[0], name="tiny"),
        deployed(HOSTS[0], name="tiny", history=[ID, "b", ID]),
    ]
    results.append(deployed(HOSTS[1], name="tiny"))
    add_history(results, lambda _: None)
    found = [(item.by, str(item.rate)) for made in results for item in made.answer.deployed]
    assert found == [("jo@desk", "10.00 tok/s"), (None, "10.00 tok/s"), (None, "None")]
    runs.note_switch(host, ID, "20261103-100000-cccccc", "ann@desk")
    add_history(results, lambda _: None)
    by = [item.by for made in results for item in made.answer.deployed]
    assert by == ["ann@desk", "ann@desk", None], "the rollback is known, and is the last switch"


def planned(host: Host, *notes: str) -> DeviceResult[Any]:
    files = FileRef(Path("a"), "model.bin", 5, "ab" * 32)
    app = Manifest("nemotron", (files,))
    steps = (SendBlobs((Blob(files),)), StageRelease(app), SwitchRelease("nemotron", app.id))
    plan = DevicePlan(host, Facts(), "aarch64-oe-linux-gcc11.2", app, actions=steps, notes=notes,
                      then=("run nemotron 5 times",))  # fmt: skip
    return replace(DeviceResult(host), outcome="planned", plan=plan)


def test_equal_plans_are_shown_once(screen: Screen) -> None:
    said = screen(80)
    show_plans([planned(host) for host in HOSTS])
    lines = fits(said.getvalue(), 80, {"nemotron", "aarch64-oe-linux-gcc11.2"})
    assert len(lines) <= 10
    assert lines[0].startswith("all 40 devices  aarch64-oe")
    assert lines[-2:] == ["the plan is the same on 40 devices", "legend: + change, > then"]


def test_a_remark_on_a_plan_is_not_marked_as_a_removal(screen: Screen) -> None:
    said = screen(80)
    show_plans([planned(HOSTS[0], "no charger")])
    lines = said.getvalue().splitlines()
    assert "  * no charger" in lines
    assert not [line for line in lines if line.lstrip().startswith("-")]
    assert lines[-1] == "legend: + change, > then, * remark"


def test_the_cure_of_a_finding_names_the_devices_that_have_it(screen: Screen) -> None:
    said = screen(200)
    finding = Finding("fastrpc-node", "warn", "closed", "EACCES", "an open node", "fleet doctor")
    made = [planned(host) for host in HOSTS]
    for n in (3, 9):
        plan = made[n].plan
        assert plan is not None
        made[n] = replace(made[n], plan=replace(plan, findings=(finding,)))
    show_plans(made)
    both = " ".join(f"--limit {HOSTS[n].name}" for n in (3, 9))
    assert f"      fix: fleet doctor {both}" in said.getvalue().splitlines()
    assert finding.cure_on("evk-07") == "fleet doctor --limit evk-07"
    facts = replace(finding, cure="fleet facts (reads the device again)")
    assert facts.cure_on("a b") == "fleet facts --limit 'a b' (reads the device again)"


def test_plans_that_differ_name_their_devices(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = screen(80)
    made = [planned(host, *(["no charger"] if n in {3, 9} else [])) for n, host in enumerate(HOSTS)]
    show_plans(made)
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("38 devices (all except the devices below)  ")
    assert any(f"{HOSTS[3].name}, {HOSTS[9].name}  " in line for line in lines)
    assert "the plan is the same on 38 devices; 2 differ" in lines
    assert len(lines) <= 30
    monkeypatch.setattr(output, "shape", "wide")
    show_plans(made)
    assert all(f"{host.name}  aarch64" in said.getvalue() for host in HOSTS)


@pytest.mark.parametrize("width", WIDTHS)
def test_healthy_boards_are_a_line_each(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    opened = Check("session", "session", "ok", "opened")
    found = [Diagnosis(host.name, "healthy", checks=(opened,)) for host in HOSTS]
    said = screen(width)
    show_doctor(found)
    lines = fits(said.getvalue(), width, {host.name for host in HOSTS})
    assert lines == [*(f"✓ {host.name}  healthy" for host in HOSTS), "40 targets: 40 healthy"]
    monkeypatch.setenv("LC_ALL", "C")
    said = screen(width)
    show_doctor(found[:1], whole=True)
    assert said.getvalue().splitlines()[0] == f"+ {HOSTS[0].name}  healthy"
    assert re.search(r"^  \+ session +opened$", said.getvalue(), re.MULTILINE), "each check with -v"


def test_what_is_wrong_has_its_cure_without_verbose(screen: Screen) -> None:
    ranked = Ranked(knowledge().causes["disk-full"], 0.9, (Evidence("df", "100 %"),))
    checks = (Check("disk", "os", "bad", "no room"), Check("os", "os", "ok", "Linux"))
    said = screen(80)
    show_doctor([Diagnosis("evk", "problem", (ranked,), checks)])
    text = said.getvalue()
    assert text.startswith("✗ evk  problem: ")
    assert "✗ os       disk       no room" in text
    assert "Linux" not in text
    for word in ("cause", "seen", "fix", "check"):
        assert f"\n  {word}" in text


def test_waves_of_many_boards_are_a_few_lines(screen: Screen) -> None:
    said = screen(80)
    waves = [Wave("canary", (HOSTS[0].name,)), Wave("1", tuple(host.name for host in HOSTS[1:]))]
    show_waves(waves, RolloutSpec(), as_json=False)
    lines = fits(said.getvalue(), 80, {"canary", HOSTS[0].name, HOSTS[3].name})
    assert len(lines) <= 12
    assert "and 36 more" in " ".join(said.getvalue().split())


def test_o_has_four_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "i.yaml"
    path.write_text(f"all: {{hosts: {{{HOSTS[0].name}: {{}}, {HOSTS[1].name}: {{}}}}}}", "utf-8")
    runner, app = CliRunner(), build("config")

    def said(*words: str) -> str:
        done = runner.invoke(app, ["config", "list", str(path), *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert said("-o", "name").splitlines() == [HOSTS[0].name, HOSTS[1].name]
    assert said("-o", "json") == said("--json")
    assert yaml.safe_load(said("-o", "yaml")) == json.loads(said("--json"))
    assert said("-o", "wide") == said()
    assert runner.invoke(app, ["config", "list", str(path), "-o", "x"]).exit_code == 2


def test_o_of_a_command_that_writes_a_file_is_the_format_too() -> None:
    text = CliRunner().invoke(build("bundle"), ["bundle", "pull", "--help"]).stdout
    assert re.search(r"--format +-o", text)
    assert re.search(r"--output  ", text)


def test_rollback_takes_an_id_as_tables_show_it() -> None:
    past = ["0123456789abcdef", "0123ffffffffffff", "89abcdef01234567"]
    assert _whole("89abcdef", past) == past[2]
    assert _whole("0123", past) == "0123", "two begin so"
    assert _whole("ffff", past) == "ffff"


@pytest.mark.parametrize(
    ("columns", "fits"), [("40", True), ("", False), ("0", False), ("x", False)]
)
def test_columns_hold_in_a_pipe(
    columns: str, fits: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = [("evk-01", "ready", "QAIRT 2.51.0.260929 of the runtime store", "12.3 s")] * 2
    output.table("boards", ("device", "state", "about", "time"), rows, ("time",))
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 40) == fits
    assert any(" | " in line for line in lines) != fits, "without COLUMNS a pipe has no end"
