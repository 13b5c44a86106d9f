"""Markdown and JUnit: valid, whole, and deaf to what devices call themselves."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace

from fleet.model.errors import InputError
from fleet.profiles.compare.comparing import Comparison, compare
from fleet.profiles.compare.gates import JudgedGate, judge_gates, parse
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.writing import junit, markdown, save

from .made import newer, noisy, op, separate

HOSTILE = "evil|[x](javascript:1)<img src=x>\x1b[31m`@all`\ud7ff\x00]]>&"
# What the schema of the Jenkins JUnit reader allows, and all that others read.
ALLOWED = {
    "testsuites": set(),
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}


def made(host: str = "evk-01", *gates: str, count: int = 12) -> tuple[Comparison, list[JudgedGate]]:
    a = separate(noisy(10, count, 1), host=host, ops=(op("m|m", 5), op("gone", 1)))
    b = newer(separate(noisy(9, count, 2), host=host, ops=(op("m|m", 6, "cpu"),)))
    found = compare(group("tag:before", a), group("tag:after", b))
    return found, judge_gates([parse(one) for one in gates], found)


def read(text: str) -> ET.Element:
    root = ET.fromstring(text)
    for one in root.iter():
        assert set(one.attrib) <= ALLOWED[one.tag], one.tag
    for suite in root.iter("testsuite"):
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{tag}"))
    return root


def test_junit_of_gates() -> None:
    text = junit(*made("evk-01", "decode_tps<-5%", "decode_tps<-50%", "ttft_ms>+5%"))
    (suite,) = read(text)
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == (
        "3",
        "1",
        "1",
    )
    (failure,) = suite.iter("failure")
    assert failure.attrib["type"] == "tripped"
    assert "slower" in failure.attrib["message"]


def test_junit_without_gates_skips_what_says_nothing() -> None:
    (suite,) = read(junit(*made(count=3)))
    assert suite.attrib["skipped"] == "1"
    (suite,) = read(junit(*made()))
    assert suite.attrib["skipped"] == "0"
    assert "slower" in next(suite.iter("system-out")).text  # type: ignore[operator]


def test_hostile_names_are_only_text() -> None:
    found, judged = made(HOSTILE, "slower")
    (suite,) = read(junit(found, judged))
    assert "\x1b" not in junit(found, judged)
    assert suite.find("testcase") is not None
    text = markdown(found, judged)
    rows = [line for line in text.splitlines() if line.startswith("| evil")]
    assert rows
    for line in text.splitlines():
        assert "\x1b" not in line
        assert "<img" not in line.replace("\\<img", "")
        assert "[x](" not in line
    cells = [line.replace("\\|", "").count("|") for line in text.splitlines() if line[:1] == "|"]
    assert set(cells) <= {6, 9}


def test_markdown_has_the_whole_story() -> None:
    found, judged = made("evk-01", "decode_tps<-5%")
    text = markdown(found, judged)
    for part in (
        "### Profiles: tag:after against tag:before",
        "tripped",
        "slower",
        "Compared on purpose (--vary)",
        "runtime: A 2.50.0.260828, B 2.51.0.260929",
        "1 gone",
        "1 moved off the NPU",
    ):
        assert part in text, part


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    save(target, "text")
    assert [one.name for one in tmp_path.iterdir()] == ["x.md"]
    with pytest.raises(InputError, match="cannot write"):
        save(tmp_path / "no" / "x.md", "text")
    target.unlink()
    target.mkdir()
    with pytest.raises(InputError, match="cannot write"):
        save(target, "text")


def test_emulated_is_in_every_row() -> None:
    a = [replace(one, emulated=True) for one in separate(noisy(10, 8, 1))]
    found = compare(group("A", a), group("B", newer(a)))
    assert "| yes |" in markdown(found)
    assert "not those of an NPU" in markdown(found)
