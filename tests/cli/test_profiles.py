"""`fleet profiles`: list, show, import, export, tag, baseline; exit codes, --json, escapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleet.cli.main import app
from fleet.model.errors import FleetError, InputError
from fleet.model.record import Measure, Metrics
from tests.profiles.records import put, record

DATA = Path(__file__).parents[1] / "profiles" / "data"
REAL = DATA.parent / "real"
RUN = "20261101-100000-aaaaaa"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    runs = tmp_path / "home" / "runs"
    others = {"load_us": Measure(7, "us")}
    for repeat, rate in enumerate((10.0, 12.0, 11.0)):
        put(runs, record(repeat=repeat, metrics=Metrics(decode_tps=rate, others=others)))
    put(runs, record(repeat=3, problems=("cut: x",), text="said \x1b[31mthis"))
    put(runs, record(run_id="20261102-100000-bbbbbb", started="2026-11-02T10:00:00Z", name="two"))
    return tmp_path / "home"


def profiles(*args: object) -> Result:
    return CliRunner().invoke(app, ["profiles", *map(str, args)])


def plain(*args: object) -> Any:
    done = profiles(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def error(*args: object) -> FleetError:
    done = profiles(*args)
    assert isinstance(done.exception, FleetError), done.output
    return done.exception


def test_each_side_of_one_ab_is_a_row_that_can_be_shown(home: Path) -> None:
    for run, rate in (("warm", 1), ("000.0a", 10), ("000.0b", 20), ("001.0a", 10), ("001.0b", 20)):
        tags, made = (f"ab-{RUN}", f"ab-{RUN}-{run[-1:].upper()}"), Metrics(decode_tps=rate)
        warm = run == "warm"
        tags = tags if not warm else (f"ab-{RUN}", f"ab-{RUN}-A")
        put(home / "runs", record(run_id=f"{RUN}-{run}", tags=tags, metrics=made, warmup=warm))
    rows = profiles("list", "--newest", "4").stdout.splitlines()
    mine = [row for row in rows if f"tag:ab-{RUN}" in row]
    assert [("| 10 tok/s" in row, "| 20 tok/s" in row) for row in sorted(mine)] == [
        (True, False), (False, True)
    ], "A and B are never pooled"  # fmt: skip
    assert any("20261102-100000-bbbbbb" in row for row in rows), "it hides no other"
    shown = profiles("show", f"tag:ab-{RUN}").stdout
    a, b = (shown.index(f"tag:ab-{RUN}-{side}: 2 runs") for side in "AB")
    assert "10.00" in shown[a:b], shown
    assert "20.00" in shown[b:], "A and B have medians of their own"
    assert "20.00" not in shown[a:b]


def test_list_is_newest_first_and_takes_words() -> None:
    assert [(one["run"], one["records"], one["counted"]) for one in plain("list")] == [
        ("20261102-100000-bbbbbb", 1, 1), (RUN, 4, 3)
    ]  # fmt: skip
    assert [one["run"] for one in plain("list", "name:tiny")] == [RUN]
    assert [one["run"] for one in plain("list", "--newest", "1")] == ["20261102-100000-bbbbbb"]
    done = profiles("list", "--newest", "1")
    assert "only the newest 1 runs are shown; for all of them: --newest 0" in done.stderr
    assert "emulated" in done.stdout
    assert plain("list", "host:none") == []
    assert "measure: fleet run PLAYBOOK" in profiles("list", "host:none").stderr


def test_list_shows_medians_and_a_picture(home: Path) -> None:
    network = Metrics(others={"execute_us": Measure(2500, "us")})
    put(home / "runs", record(run_id="20261103-100000-cccccc", name="net", metrics=network))
    rows = {row["run"]: row for row in plain("list")}
    assert (rows[RUN]["metric"], rows[RUN]["median"]) == ("decode_tps", 11.0)
    assert rows[RUN]["values"] == [10.0, 12.0, 11.0], "one of the four does not count"
    found = rows["20261103-100000-cccccc"]
    assert (found["metric"], found["median"]) == ("latency_ms", 2.5)
    shown = profiles("list").stdout
    assert "11 tok/s" in shown
    assert "2.5 ms" in shown
    assert "▁█▅" in shown or "_#=" in shown


def test_each_side_of_an_ab_is_a_row_and_not_the_last(home: Path) -> None:
    ab = "20261104-100000-dddddd"
    speeds = {"-warm": 1.0, "-000.0a": 10.0, "-000.0b": 20.0, "-001.0a": 12.0, "-001.1b": 24.0}
    for place, (run, speed) in enumerate(speeds.items()):
        warm = run == "-warm"
        made = record(
            run_id=ab + run, name="two", started=f"2026-11-04T10:0{place}:00Z", warmup=warm,
            tags=(f"ab-{ab}", f"ab-{ab}-{'A' if warm else run[-1].upper()}"),
            metrics=Metrics(decode_tps=speed),
        )  # fmt: skip
        put(home / "runs", made)
    rows = plain("list")
    assert [(row["run"], row["records"], row["counted"]) for row in rows[:3]] == [
        (f"tag:ab-{ab}-B", 2, 2), (f"tag:ab-{ab}-A", 3, 2), ("20261102-100000-bbbbbb", 1, 1)
    ]  # fmt: skip
    assert [row["median"] for row in rows[:2]] == [22.0, 11.0], "each side has its own"
    assert len(plain("list", "--all")) == len(rows) + 3
    assert len(plain("show", rows[1]["run"])) == 3, "the name of the row is a selection"
    assert len(plain("show", f"tag:ab-{ab}")) == 5
    assert plain("show", "last")[0]["run_id"] == "20261102-100000-bbbbbb"
    assert "no stored run matches" in error("show", "prev").message
    alone = error("compare", "prev", "last")
    assert "there is only one run of two" in alone.message
    assert "those of `fleet ab` do not count" in alone.message
    assert alone.hint.startswith("fleet run PLAYBOOK")


def test_list_of_records() -> None:
    rows = plain("list", "name:tiny", "--records")
    assert [row["repeat"] for row in rows] == [3, 2, 1, 0]
    assert {row["emulated"] for row in rows} == {True}
    assert "12.00" in profiles("list", "name:tiny", "--records").stdout


def test_show_gives_medians_of_what_counts() -> None:
    done = profiles("show", RUN)
    assert done.exit_code == 0
    assert "3/4" in done.stdout
    assert "11.00" in done.stdout, "the median of 10, 12, 11"
    assert "load_us 7 us" in done.stderr
    assert "is not valid: x" in done.stderr
    assert "emulated (lab device" in done.stderr
    assert "\x1b[31m" not in done.stdout
    assert "said" in done.stdout
    assert [one["repeat"] for one in plain("show", RUN)] == [0, 1, 2, 3]
    assert plain("show", RUN)[3]["counts"] is False
    assert plain("show")[0]["run_id"] == "20261102-100000-bbbbbb", "last"


def test_show_of_several_runs_and_of_nothing() -> None:
    assert "host:evk-01: 2 runs" in profiles("show", "host:evk-01").stdout
    missing = error("show", "nope")
    assert missing.message == "no stored run matches 'nope'"
    assert missing.hint == "fleet profiles list"
    assert missing.exit_code == 2
    assert error("show", "foo:x").exit_code == 2


def test_the_published_figures_are_shown_with_their_source() -> None:
    done = profiles("show", "reference:nemotron-iq9075")
    for text in ("4060.0", "183.5", "158.05", "10.03", "31", "eivholt/qai-nemotron", "not told"):
        assert text in done.stdout, text
    assert plain("show", "reference:nemotron-iq9075")[0]["metrics"]["ttft_ms"] == 183.5


def test_a_damaged_record_is_named_and_the_rest_is_shown(home: Path) -> None:
    bad = home / "runs" / RUN / "evk-01" / "9"
    bad.mkdir()
    (bad / "record.json").write_text("{")
    done = profiles("list")
    assert done.exit_code == 0
    assert f"warning: {bad}/record.json: is damaged" in done.stderr.replace("\n", "")
    assert RUN in done.stdout


def test_the_files_of_the_real_viewer_are_known_by_content() -> None:
    done = profiles("import", REAL / "viewer")
    assert done.exit_code == 0, done.output
    assert (
        "12 new results, 0 already stored; 0 files are not profiles, 0 are damaged" in done.stdout
    )
    known = profiles("import", REAL / "executorch" / "stderr_profile0.txt", "--json")
    assert json.loads(known.stdout)["new"] == 1


def test_import_names_what_is_bad_and_takes_the_rest() -> None:
    done = profiles("import", DATA, "--host", "evk-09", "--name", "m", "--tag", "t", "--hardware")
    assert done.exit_code == 1
    assert "7 new results, 0 already stored; 0 files are not profiles, 2 are damaged" in done.stdout
    assert "prof_basic_qnn.log" in done.stderr
    assert "qnn-profile-viewer" in done.stderr
    rows = plain("list", "tag:t,host:evk-09,name:m,emulated:no", "--records")
    assert len(rows) == 7
    done = profiles("import", DATA / "ctx_basic.csv", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "files": 1, "new": 0, "known": 1, "bad": [], "skipped": []
    }  # fmt: skip
    assert error("import", DATA / "none").exit_code == 2


def test_what_nobody_says_is_shown_as_unknown() -> None:
    profiles("import", DATA / "genie_dialog.json")
    row = next(one for one in plain("list") if one["run"].startswith("imported-"))
    assert row["emulated"] == "unknown"
    shown = profiles("show", "emulated:unknown").stdout
    assert shown.count("unknown") == 4, "device, chip, QAIRT, emulated"
    assert "75.3" in shown


def test_a_store_of_its_own(tmp_path: Path) -> None:
    store = tmp_path / "mine.db"
    profiles("import", DATA / "genie_dialog.json", "--store", store)
    assert len(plain("list", "--store", store)) == 1
    assert len(plain("list")) == 2
    assert len(plain("list", "--store", tmp_path / "home" / "runs")) == 2, "a folder of records"


def test_tag_and_export(tmp_path: Path) -> None:
    assert plain("tag", RUN, "good") == {"tag": "good", "changed": 4}
    assert "the tag good was added to 0 results" in profiles("tag", RUN, "good").stdout
    target = tmp_path / "x.csv"
    done = profiles("export", "tag:good", "--output", target)
    assert "wrote 4 results" in done.stderr
    assert len(target.read_text().splitlines()) == 5
    assert profiles("export", "tag:good", "-o", "csv").stdout == target.read_text()
    for words in ((), ("-o", "jsonl"), ("-o", "json"), ("--json",)):
        lines = profiles("export", "tag:good", *words).stdout.splitlines()
        assert [json.loads(line)["run_id"] for line in lines] == [RUN] * 4
    assert plain("tag", RUN, "good", "--remove")["changed"] == 4
    assert error("tag", "tag:good", "x").message == "no stored result matches 'tag:good'"
    assert "which format" in error("export", RUN, "--output", tmp_path / "x").message
    assert profiles("export", RUN, "--output", tmp_path / "x", "--format", "jsonl").exit_code == 0
    assert len((tmp_path / "x").read_text().splitlines()) == 4


def test_baselines() -> None:
    assert plain("baseline", "save", "good", RUN) == {"baseline": "good", "records": 4}
    assert "--replace" in error("baseline", "save", "good", "last").hint
    assert [one["name"] for one in plain("baseline", "list")] == ["good"]
    assert [one["run"] for one in plain("list", "baseline:good")] == [RUN]
    assert "removed baseline good" in profiles("baseline", "remove", "good").stdout
    gone = error("list", "baseline:good")
    assert isinstance(gone, InputError)
    assert "baseline list" in gone.hint
