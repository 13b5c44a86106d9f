"""The file: whole lines, a torn end, one writer, a disk that is full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.engine.rollout.journal import Journal, busy
from fleet.engine.rollout.lines import (
    BeginLine,
    EndLine,
    JudgedLine,
    PlanLine,
    ResumeLine,
    StepLine,
    read_line,
)
from fleet.engine.rollout.waves import plan_waves
from fleet.model.errors import FleetError, InputError
from fleet.model.plain import to_plain
from fleet.model.secret import SecretRef

from .fakes import header, names, spec

RULES = spec(canary="1")


def begun(path: Path) -> Journal:
    return Journal.begin(path, header(plan_waves(names(3), RULES), RULES))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r1" / "journal.jsonl"


def test_lines_are_json_and_for_this_user_alone(path: Path) -> None:
    journal = begun(path)
    journal.write(BeginLine(host="d001", wave="canary"))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["line"], first["schema"], first["pid"]) == ("run", 1, os.getpid())
    assert first["waves"][0] == {"wave": "canary", "hosts": ["d001"]}
    assert (second["line"], second["host"]) == ("begin", "d001")
    assert path.stat().st_mode & 0o077 == 0


def test_later_lines_change_what_earlier_ones_said(path: Path) -> None:
    journal = begun(path)
    plan = PlanLine(host="d001", release="r1", device_kind="qcs9075 v73", boot_id="b")
    journal.write(plan)
    journal.write(EndLine(host="d001", outcome="failed", text="no", hint="fleet doctor"))
    for verdict in ("go", "stop"):
        journal.write(JudgedLine(wave="canary", verdict=verdict))
    for forced in (False, True):
        state = Journal.read(path)
        assert (state.releases, state.passed) == ({"qcs9075 v73": "r1"}, set())
        assert state.devices["d001"].hint == "fleet doctor"
        journal.write(ResumeLine(forced=forced))
    assert Journal.read(path).releases == {}


def test_a_secret_in_the_text_of_a_device_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_SECRET", "hunter2hunter2")
    SecretRef("env:ROLLOUT_SECRET", path.parent).get().reveal()
    begun(path).write(EndLine(host="d001", outcome="failed", text="sudo: hunter2hunter2"))
    assert b"hunter2" not in path.read_bytes()
    assert b"sudo: " in path.read_bytes()


def test_each_line_and_its_name_are_on_the_disk_when_it_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: dict[Path, int] = {}
    fsync = os.fsync

    def recorded(file: int) -> None:
        fsync(file)
        flushed[Path(f"/proc/self/fd/{file}").readlink()] = os.fstat(file).st_size

    monkeypatch.setattr(os, "fsync", recorded)
    journal = begun(path)
    assert {path.parent, path.parent.parent} < flushed.keys(), "the names of file and folder"
    for number in range(3):
        assert flushed[path] == path.stat().st_size
        journal.write(BeginLine(host=f"d00{number + 1}", wave="canary"))
    assert flushed[path] == path.stat().st_size


def test_a_torn_end_at_any_byte_is_cut_off(path: Path, tmp_path: Path) -> None:
    journal = begun(path)
    whole = path.read_bytes()
    journal.write(BeginLine(host="d001", wave="canary"))
    journal.close()
    data = path.read_bytes()
    torn = tmp_path / "torn.jsonl"
    for size in range(len(whole), len(data)):
        torn.write_bytes(data[:size])
        again = Journal.reopen(torn)
        assert again.state.devices["d001"].attempts == 0
        assert torn.stat().st_size == len(whole), "what is torn is cut off at once"
        again.write(EndLine(host="d002", outcome="changed", text=""))
        again.close()
        assert Journal.read(torn).devices["d002"].fine
    torn.write_bytes(data + b"\0" * 100 + b"\n")
    assert Journal.read(torn).devices["d001"].attempts == 1, "zeros of a power cut"


@pytest.mark.parametrize(
    ("at", "text", "words"),
    [
        (1, b'{"line": "begin", "host"\n', "jsonl:2 is damaged"),
        (1, b'{"line": "begin", "host": "d999", "wave": "1"}\n', "jsonl:2 is damaged"),
        (1, b"[]\n", "jsonl:2 is damaged"),
        (1, b"[" * 200_000 + b"\n", "jsonl:2 is damaged: the line is not valid JSON of fleet"),
        (
            0,
            b'{"run":' * 200_000 + b"\n",
            "jsonl:1 is damaged: the line is not valid JSON of fleet",
        ),
        (
            1,
            b'{"line": "run", "schema": 1}\n',
            "jsonl:2 is damaged: only its first line must be of the kind",
        ),
        (
            0,
            b'{"line": "run", "schema": 2, "fleet": "9.9"}\n',
            "fleet 9.9 wrote format 2, this fleet reads",
        ),
        (0, b'{"line": "begin"}\n', "jsonl:1 is damaged: only its first line must be of the kind"),
    ],
)
def test_damage_before_the_end_is_one_error(path: Path, at: int, text: bytes, words: str) -> None:
    journal = begun(path)
    journal.write(EndLine(host="d001", outcome="changed", text=""))
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(at, text)
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=words) as caught:
        Journal.reopen(path)
    assert caught.value.hint
    assert not busy(path), "a refused journal is not held"


@pytest.mark.parametrize("data", [b"", b'{"line": "run", "sch'])
def test_a_run_that_never_began(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(InputError, match="ended before it changed a device"):
        Journal.reopen(path)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_garbage_is_an_error_and_no_crash(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        path.write_bytes(data)
        with pytest.raises(InputError):
            Journal.read(path)


def test_one_writer(path: Path) -> None:
    journal = begun(path)
    assert busy(path)
    with pytest.raises(InputError, match="another fleet process is working on run"):
        Journal.reopen(path)
    journal.close()
    assert not busy(path)
    Journal.reopen(path).close()
    with pytest.raises(FleetError, match="cannot write the journal"):
        begun(path)


HOLDER = """
import sys, time
from pathlib import Path
from fleet.engine.rollout.journal import Journal
journal = Journal.reopen(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_the_kernel_lets_go_of_a_killed_writer(path: Path) -> None:
    begun(path).close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another fleet"):
            Journal.reopen(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    Journal.reopen(path).close()


def test_many_threads_write_whole_lines(path: Path) -> None:
    journal = begun(path)

    def work(name: str) -> None:
        for number in range(50):
            journal.write(StepLine(host=name, step=f"s{number}", text="x" * number * 40))

    threads = [threading.Thread(target=work, args=(name,)) for name in names(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(path.read_text().splitlines()) == 151
    assert Journal.read(path) == journal.state


def test_a_full_disk_is_an_error_and_spoils_no_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begun(path)
    whole, real = path.read_bytes(), os.pwrite
    left = [10]

    def full(file: int, data: bytes, offset: int) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        count = real(file, data[: left[0]], offset)
        left[0] -= count
        return count

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FleetError, match="No space left on device"):
        journal.write(BeginLine(host="d001", wave="canary"))
    monkeypatch.undo()
    assert path.read_bytes() == whole
    journal.write(EndLine(host="d001", outcome="changed", text=""))
    assert Journal.read(path).devices["d001"].fine


DATA = Path(__file__).parent / "data"
STATES: dict[str, Any] = {
    name: state
    for version in ("0.2.0", "0.3.0")
    for name, state in json.loads((DATA / f"states-{version}.json").read_text("utf-8")).items()
}


@pytest.mark.parametrize("name", sorted(STATES))
def test_journals_of_earlier_versions_are_read_as_those_versions_read_them(name: str) -> None:
    state, then = Journal.read(DATA / name), STATES[name]
    assert {each: getattr(state, each) for each in then.keys() - {"devices", "passed"}} == {
        each: value for each, value in then.items() if each not in {"devices", "passed"}
    }
    assert sorted(state.passed) == then["passed"]
    devices = {host: asdict(device) for host, device in state.devices.items()}
    later = {"hint": "", "afar": False}  # 0.2.0 did not write them
    assert devices == {host: later | device for host, device in then["devices"].items()}
    first = json.loads((DATA / name).read_text("utf-8").splitlines()[0])
    began = to_plain(state.header)
    assert began == first | {"options": began["options"], "owner": first.get("owner", "")}
    for option, value in first["options"].items():
        assert began["options"].get(option) == value, option


@pytest.mark.parametrize("name", [name for name in sorted(STATES) if name.startswith("0.3.0")])
def test_lines_are_written_as_0_3_0_wrote_them(name: str) -> None:
    for text in (DATA / name).read_text("utf-8").splitlines():
        assert json.dumps(to_plain(read_line(json.loads(text))), ensure_ascii=False) == text


def test_lines_of_unknown_kinds_and_unknown_keys_are_ignored(path: Path) -> None:
    journal = begun(path)
    journal.write(EndLine(host="d001", outcome="changed", text=""))
    journal.close()
    added = (
        b'{"line": "weather", "at": "", "host": "d999", "text": 7}\n'
        b'{"line": "soak", "wave": "canary", "seconds": 5, "until": "noon"}\n'
        b'{"line": "finished", "ending": "stopped", "text": "why", "score": 1.5}\n'
    )
    path.write_bytes(path.read_bytes() + added)
    journal = Journal.reopen(path)
    assert (journal.state.word, journal.state.text) == ("stopped", "why")
    assert journal.state.devices["d001"].fine
    journal.close()
    assert path.read_bytes().endswith(added), "what is not understood stays in the file"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"line": "end", "host": "d001", "text": ""}', "the line has no `outcome`"),
        ('{"line": "plan", "host": 7}', "`host` of the line must be text, not 7"),
        ('{"line": "resume", "forced": "yes"}', "`forced` of the line must be true or false"),
    ],
)
def test_a_damaged_line_is_named_with_its_key(path: Path, line: str, words: str) -> None:
    begun(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole + line.encode() + b'\n{"line": "interrupted"}\n')
    with pytest.raises(InputError, match="jsonl:2 is damaged: " + words):
        Journal.read(path)
