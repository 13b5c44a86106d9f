"""Every wrong row of a data table is refused with its place and cure."""

from __future__ import annotations

from importlib.resources import files
from itertools import chain
from pathlib import Path

import pytest

from fleet.data import load
from fleet.model.errors import InputError
from fleet.triage.matcher import Matcher
from tests.config.tables import TABLES, check, main

DATA = Path(str(files("fleet.data")))


def test_every_table_that_ships_has_a_model_and_passes() -> None:
    assert {path.stem for path in DATA.glob("*.yaml")} == set(TABLES)
    assert main([]) == 0


def mistaken(table: str, old: str, new: str, folder: Path) -> InputError:
    text = (DATA / f"{table}.yaml").read_text("utf-8")
    assert old in text
    path = folder / f"{table}.yaml"
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(InputError) as caught:
        check(path)
    error = caught.value
    assert error.position is not None
    assert error.position.file == path
    assert error.position.line == text[: text.index(old)].count("\n") + 1
    return error


@pytest.mark.parametrize(
    ("table", "old", "new", "message", "hint"),
    [
        (
            "socs",
            "  soc_model: 77\n",
            "  soc_modell: 77\n",
            "unknown key 'soc_modell'",
            "soc_model",
        ),
        ("socs", "arch: v73", "arch: 73", "'arch' must be text", 'quote it: "73"'),
        ("socs", "arch: v73", "arch: hexagon73", "is not a valid Hexagon arch", "v73"),
        ("socs", "vtcm_mb: 8", "vtcm_mb: many", "'vtcm_mb' must be a whole number", ""),
        ("socs", "sun: [SM8750", "sun: [SM8751", "'SM8751' is not a chip", "SM8750"),
        ("fastrpc", "rules: true", "rules: maybe", "'rules' must be true or false", ""),
        ("fastrpc", "  heap: true", "  heep: true", "unknown key 'heep'", "heap"),
        (
            "fastrpc",
            'date: "2026-10-28"',
            "date: last week",
            "'last week' is not a valid day",
            "2026",
        ),
        (
            "fastrpc",
            "source: https://",
            "source: read at ",
            "not a valid source",
            "https",
        ),
        ("runtime_files", "kind: device", "kind: devise", "not a value of 'kind'", "device"),
        ("runtime_files", "tool_required", "tool_requierd", "unknown key", "tool_required"),
        ("runtime_files", "{aarch64: aarch64-android", "{aarch64: arm-android", "not a target", ""),
        ("qairt_releases", "core_api: 2.36.0", "core_api: 2.36", "must be text", '"2.36"'),
        ("benign", "source:", "sourse:", "unknown key 'sourse'", "source"),
        ("platform_words", "windows:", "windoze:", "unknown key 'windoze'", "windows"),
        ("benign", "'dummy call to rpcmem_init'", "'('", "valid regular expression", "RE2"),
        (
            "benign",
            "'dummy call to rpcmem_init'",
            "'a(?=b)'",
            "syntax that RE2 does not have",
            "RE2",
        ),
        ("benign", "'dummy call to rpcmem_init'", "''", "'' matches every line", "one character"),
        (
            "benign",
            "'dummy call to rpcmem_init'",
            "' *'",
            "' *' matches every line",
            "one character",
        ),
        ("error_codes", "[1000, 1999, common]", "['a', 1999, common]", "a whole number", ""),
        ("error_codes", "[1000, 1999, common]", "[1000, 1999, 3]", "must be text", ""),
        (
            "error_codes",
            "  0: [QNN_SUCCESS]",
            "  zero: [QNN_SUCCESS]",
            "not a valid number",
            "14001",
        ),
    ],
)
def test_a_wrong_row_is_named_with_its_place(
    tmp_path: Path, *, table: str, old: str, new: str, message: str, hint: str
) -> None:
    error = mistaken(table, old, new, tmp_path)
    assert message in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize("ranges", ["[['a', 'b', 3]]", "[[1000, 1999]]", "[[1, 2, a, b]]"])
def test_a_range_of_codes_is_two_numbers_and_a_name(tmp_path: Path, ranges: str) -> None:
    text = (DATA / "error_codes.yaml").read_text("utf-8")
    before, _, after = text.partition("qnn_ranges:\n")
    path = tmp_path / "error_codes.yaml"
    path.write_text(f"{before}qnn_ranges: {ranges}\n{after[after.index('qnn:') :]}", "utf-8")
    with pytest.raises(InputError) as caught:
        check(path)
    assert caught.value.position is not None
    assert caught.value.position.line == before.count("\n") + 1


@pytest.mark.parametrize("table", ["failure_words", "linux"])
def test_lists_of_patterns_are_checked_like_single_ones(tmp_path: Path, table: str) -> None:
    name = {"failure_words": "success", "linux": "platform_words"}[table]
    text = (DATA / f"{name}.yaml").read_text("utf-8")
    before, key, after = text.partition(f"\n{table}:\n")
    assert key
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"{before}{key}  - '('\n{after}", "utf-8")
    with pytest.raises(InputError, match=r"matches every line|regular expression|RE2"):
        check(path)


def test_the_patterns_that_ship_are_known_to_re2() -> None:
    """The check of the tables knows only Python's `re`: the doctor alone has RE2."""
    success, words = load("success"), load("platform_words")
    rows = [row["match"] for row in (*load("benign")["patterns"], *success["patterns"])]
    assert Matcher([*rows, *success["failure_words"], *chain(*words.values())])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("chip: QCS9100", "chip: QCS9075", "has two rows"),
        ("  - litert_table\n", "  - nobody\n", "is not a key of sources"),
        ("  - 676\n", "  - 667\n", "already belongs to QCS9075"),
    ],
)
def test_rows_agree_with_each_other(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (DATA / "socs.yaml").read_text("utf-8")
    assert old in text
    path = tmp_path / "socs.yaml"
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(InputError, match=message):
        check(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rung: token-limit", "rung: token-limits", "'token-limits' is not a rung"),
        ("lab: [no-rules]", "lab: [no-rule]", "'no-rule' is not a reason"),
        (
            "needs: [genie]",
            "needs: [performance]",
            "is not a rung of the self-test before this one",
        ),
        ("docs/sources/qairt.md 7", "I read it", "not a valid source"),
    ],
)
def test_an_assumption_names_what_is_there(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    error = mistaken("assumptions", old, new, tmp_path)
    assert message in error.message


def test_a_file_that_is_no_table_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "chips.yaml")]) == 2
    assert "one of: socs, fastrpc" in capsys.readouterr().err


def test_another_packaging_is_one_more_row(tmp_path: Path) -> None:
    text = (DATA / "fastrpc.yaml").read_text("utf-8")
    row = text[text.index("\nradxa:") : text.index("\nupstream:")]
    path = tmp_path / "fastrpc.yaml"
    path.write_text(text + row.replace("\nradxa:", "\nmaker:", 1), "utf-8")
    check(path)
