"""Names and contents of all kinds never become shell syntax, on any of the shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.device.shell import device_script
from fleet.model.command import Command
from fleet.model.files import FileRef
from fleet.model.plan import Action
from fleet.model.system import FileSeen, UnitSeen, WantedFile
from fleet.ops.system.steps_files import LinkLibrary, WriteFile
from fleet.ops.system.steps_packages import InstallPackages
from fleet.ops.system.steps_users import AddMember, CreateGroup, SetUnit
from fleet.transport.quote import render
from tests import needs

SHELLS = {
    "dash": ["dash"],
    "bash": ["bash"],
    "busybox": ["busybox", "sh"],
    "mksh": ["mksh"],
}
NASTY = ["a b", "'", '"', ";touch x", "$(touch x)", "`touch x`", "-rf", "a\nb", "\\"]
NASTY += ["*", "~", "$HOME", "&& touch x", "é", "!", "#", "a\tb", "\r"]
letters = st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])
names = st.one_of(st.sampled_from(NASTY), st.text(letters, min_size=1, max_size=20))


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    argv = SHELLS[request.param]
    needs.tool(argv[0])
    return argv


def literal(commands: list[Command], shell: list[str], folder: Path) -> list[str]:
    """The words that programs see when the device's shell gets each of our lines."""
    lines = [render(Command(("printf", "%s\\0", *command.argv, "end"))) for command in commands]
    done = subprocess.run(
        [*shell, "-c", "\n".join(lines)], capture_output=True, cwd=folder, check=True, timeout=30
    )
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@settings(max_examples=60)
@given(words=st.tuples(names, names, names, names), content=st.binary(max_size=40))
def test_every_command_keeps_its_words(
    shell: list[str], tmp_path: Path, words: tuple[str, str, str, str], content: bytes
) -> None:
    user, group, path, unit = words
    wanted = WantedFile(f"/etc/{path}", content, "0644", user, group)
    steps: list[Action] = [
        CreateGroup(group),
        AddMember(user, group),
        AddMember(user, group, shadow=False),
        WriteFile(wanted, "/base", FileSeen("link", target=path)),
        InstallPackages((path,)),
        SetUnit(unit, True, False, UnitSeen("loaded", "active", "disabled")),
    ]
    (tmp_path / "empty").mkdir(exist_ok=True)
    commands = [command for step in steps for command in (*step.commands(), *step.undo())]
    seen = literal(commands, shell, tmp_path / "empty")
    assert seen == [word for command in commands for word in (*command.argv, "end")]
    assert list((tmp_path / "empty").iterdir()) == []


@settings(max_examples=60)
@given(name=names, content=st.binary(max_size=200))
def test_what_an_administrator_copies_makes_the_file_and_nothing_else(
    shell: list[str], tmp_path: Path, name: str, content: bytes
) -> None:
    folder = tmp_path / "etc"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    name = name.replace("/", "_")
    if name in {".", ".."} or len(name.encode()) > 100:
        return
    wanted = WantedFile(f"{folder}/{name}", content, "0644", str_uid(), str_uid())
    text = WriteFile(wanted, "/base").as_shell()
    subprocess.run(shell, input=text.encode(), cwd=folder, check=True, timeout=120)
    assert [one.name for one in folder.iterdir()] == [name]
    assert (folder / name).read_bytes() == content


def str_uid() -> str:
    """A numeric owner: install takes one, and a test need not be root."""
    import os

    return str(os.getuid())


@settings(max_examples=40)
@given(name=names)
def test_device_scripts_take_names_as_data(shell: list[str], tmp_path: Path, name: str) -> None:
    base = tmp_path / "base"
    shutil.rmtree(base, ignore_errors=True)
    name = name.replace("/", "_").replace("\n", "_").replace("\t", "_").replace("\r", "_")
    if name in {".", ".."} or not name.strip():
        return
    (base / "store").mkdir(parents=True)
    (base / "store" / "00").write_bytes(b"x")
    script = device_script("place", str(base), f"{base}/staged")
    argv = [*shell, "-c", script.argv[2], *script.argv[3:]]
    subprocess.run(argv, input=f"00\t{name}\n".encode(), check=True, cwd=tmp_path, timeout=120)
    assert {one.name for one in (base / "staged").iterdir()} == {name}
    assert {one.name for one in tmp_path.iterdir()} == {"base"}


@settings(max_examples=10)
@given(wanted=st.lists(names, min_size=4, max_size=8))
def test_the_state_script_takes_names_as_data(
    shell: list[str], tmp_path: Path, wanted: list[str]
) -> None:
    script = device_script("system")
    argv = [*shell, "-c", script.argv[2], *script.argv[3:]]
    kinds = ("package", "group", "file", "unit")
    lines = "".join(f"{kind}\t{name}\n" for name in wanted for kind in kinds)
    done = subprocess.run(
        argv, input=lines.encode(), capture_output=True, cwd=tmp_path, check=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == b"end"
    assert list(tmp_path.iterdir()) == []


def test_a_link_and_package_files_are_described_without_surprise(tmp_path: Path) -> None:
    assert LinkLibrary("a", "b; c", "/base").undo()[0].argv == ("rm", "-f", "--", "/base/shim/a")
    ref = FileRef(tmp_path / "x", "a b.deb", 3, "0" * 64)
    assert ref.name == "a b.deb"
