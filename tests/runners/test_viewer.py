"""qnn-profile-viewer on this host: what it is asked for and in which environment.

The viewer here is a small C program that the real loader starts, and that needs a library of the
SDK and one that only the user's LD_LIBRARY_PATH has, as the real one needs libc++. What it writes
is what the one of SDK 2.25 wrote for a model of ours.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fleet.profiles.formats import qnn
from fleet.runners import Ended, Outcome
from fleet.runners.registry import OWN
from tests import needs

from .test_others import KITS

DATA = Path(__file__).parents[1] / "profiles" / "real" / "viewer"
TARGET = "x86_64-linux-clang"
RUNNER = OWN["qnn-net-run"]
KIT = KITS["qnn-net-run"]
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int of_the_sdk(void); int of_the_user(void);
int main(int count, char **words) {
  int lines = 1 << 30;
  char line[4096]; const char *what = DATA "/detailed.csv", *to = 0, *own = getenv("OF_THE_USER");
  if (of_the_sdk() != 1 || of_the_user() != 2 || !own || strcmp(own, "yes")) return 9;
  for (int at = 1; at + 1 < count; at++) {
    if (!strcmp(words[at], "--reader")) {
      if (!strstr(words[at + 1], "/libQnnJsonProfilingReader.so")) return 8;
      if (getenv("NO_JSON")) { fputs("Failed to initialize reader.\\n", stderr); return 1; }
      what = DATA "/detailed.json";
      if (getenv("CUT_JSON")) lines = 40;
    } else if (at == 1 && getenv("CUT_CSV")) lines = 10;
    if (!strcmp(words[at], "--output")) to = words[at + 1];
  }
  FILE *in = fopen(what, "r"), *out = to ? fopen(to, "w") : 0;
  if (!in || !out) return 7;
  for (; lines && fgets(line, sizeof line, in); lines--)
    fwrite(line, 1, strlen(line) - (lines == 1), out); /* without the last line end */
  return fclose(out);
}
"""


@dataclass(frozen=True)
class Sdk:
    root: Path
    of_user: Path

    def read(self) -> Outcome:
        files = {"output/qnn-profiling-data_0.log": b"\x00binary"}
        one = replace(KIT, runtime_root=self.root)
        return RUNNER.read(RUNNER.start(one), one, Ended(0, b"", files))


def library(folder: Path, name: str, code: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"lib{name}.so"
    subprocess.run(
        [needs.compiler(), "-shared", "-x", "c", "-", "-o", str(path)],
        input=code.encode(),
        check=True,
    )
    return path


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sdk:
    root, of_user = tmp_path / "sdk", tmp_path / "of-the-user"
    libraries, programs = root / "lib" / TARGET, root / "bin" / TARGET
    ours = library(libraries, "sdk", "int of_the_sdk(void) { return 1; }")
    theirs = library(of_user, "user", "int of_the_user(void) { return 2; }")
    library(of_user, "sdk", "int of_the_sdk(void) { return 3; }")  # another QAIRT of the user's
    (libraries / "libQnnJsonProfilingReader.so").write_bytes(b"")
    programs.mkdir(parents=True)
    viewer = programs / "qnn-profile-viewer"
    links = [f"-L{ours.parent}", "-lsdk", f"-L{theirs.parent}", "-luser"]
    subprocess.run(
        [needs.compiler(), "-x", "c", f'-DDATA="{DATA}"', "-", "-o", str(viewer), *links],
        input=SOURCE.encode(),
        check=True,
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(of_user))
    monkeypatch.setenv("OF_THE_USER", "yes")
    return Sdk(root, of_user)


def test_it_gets_the_users_environment_and_is_asked_for_both(sdk: Sdk) -> None:
    seen = sdk.read()
    assert seen.text == ""
    assert seen.raw["profile.json"] == (DATA / "detailed.json").read_bytes()
    assert seen.raw["profile.csv"] == (DATA / "detailed.csv").read_bytes()
    assert [one.name for one in seen.ops[:2]] == ["Input", "Relu1"]
    assert seen.ops[1].value == pytest.approx(8862.33, abs=0.01)
    assert seen.metrics.others["execute_us"].value == pytest.approx(79287.67, abs=0.01)
    assert os.environ["LD_LIBRARY_PATH"] == str(sdk.of_user), "ours is as it was"


def test_an_sdk_without_that_reader_gives_the_table(sdk: Sdk) -> None:
    (sdk.root / "lib" / TARGET / "libQnnJsonProfilingReader.so").unlink()
    assert {"profile.csv", "profile.json"} & sdk.read().raw.keys() == {"profile.csv"}


def test_a_reader_that_fails_gives_the_table(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_JSON", "1")
    assert {"profile.csv", "profile.json"} & sdk.read().raw.keys() == {"profile.csv"}


def test_a_library_that_no_sdk_brings_is_said_with_its_cure(
    sdk: Sdk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH")
    without = sdk.read()
    assert "error while loading shared libraries: libuser.so" in without.text
    assert without.raw["output/qnn-profiling-data_0.log"] == b"\x00binary"
    viewer = sdk.root / "bin" / TARGET / "qnn-profile-viewer"
    viewer.write_text(  # the words of the loader, as they were seen with SDK 2.25
        "#!/bin/sh\n"
        'echo "qnn-profile-viewer: error while loading shared libraries: libc++.so.1: cannot '
        'open shared object file: No such file or directory" >&2\nexit 127\n'
    )
    assert "sudo apt install libc++1 libc++abi1" in sdk.read().text


def test_one_that_an_older_fleet_stored_has_its_cure(sdk: Sdk) -> None:
    viewer = sdk.root / "bin" / TARGET / "qnn-profile-viewer"
    viewer.chmod(0o644)
    assert sdk.read().text == f"qnn-profile-viewer cannot start; chmod +x {viewer}"


def test_a_cut_json_leaves_the_table(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUT_JSON", "1")
    seen = sdk.read()
    table = qnn.read((DATA / "detailed.csv").read_text("utf-8"))
    assert seen.ops == table.ops
    assert {name: seen.metrics.others[name] for name in table.metrics.others} == (
        table.metrics.others
    )
    assert "profile.json: the profile" in seen.text
    assert seen.raw["profile.json"], "both are kept"


def test_a_cut_table_leaves_the_json(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUT_CSV", "1")
    seen = sdk.read()
    assert [one.name for one in seen.ops[:2]] == ["Input", "Relu1"]
    assert seen.metrics.others["execute_us"].value == pytest.approx(79287.67, abs=0.01)
    assert "profile.csv: the file is truncated: its last line has no line break" in seen.text


def test_both_cut_leave_nothing_and_say_why(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUT_CSV", "1")
    monkeypatch.setenv("CUT_JSON", "1")
    seen = sdk.read()
    assert (seen.ops, dict(seen.metrics.source)) == ((), {})
    assert "profile.json: " in seen.text
    assert "profile.csv: " in seen.text
