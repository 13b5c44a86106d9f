"""The demo: its files in a clone and in the wheel, what it says before, and what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleet.cli import demo
from fleet.config.playbook import load_playbook
from fleet.config.project import load
from fleet.lab import rootfs, tools
from fleet.lab.namespace import can_unshare
from fleet.model.errors import InputError
from fleet.runtimes.store import RuntimeStore

ROOT = Path(__file__).parents[2]


def test_it_writes_a_project_once_and_into_no_other_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fleet-demo"
    demo._write(folder)
    project = load(folder / "fleet.yaml")
    assert project.inventory is not None
    assert project.inventory.read_text() == (ROOT / "inventories/lab.yaml").read_text()
    assert project.playbook is not None
    assert load_playbook(project.playbook).bundle.resolve() == folder / "assets/tiny-genie"
    (folder / "fleet.yaml").write_text("parallel: 2\n")
    demo._write(folder)
    assert (folder / "fleet.yaml").read_text() == "parallel: 2\n"
    (folder / "fleet.yaml").unlink()
    with pytest.raises(InputError, match="is not a fleet project"):
        demo._write(folder)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("boards", "fetched", "said"),
    [
        ("", True, "no download is needed; the demo takes about half a minute"),
        ("", False, "the demo takes about 44 s at 10 MB/s, 2 minutes at 1 MB/s"),
        ("tree", False, "the demo takes about 70 s at 10 MB/s, 4 minutes at 1 MB/s"),
        ("userland", False, "the demo takes about 51 s at 10 MB/s, 3 minutes at 1 MB/s"),
    ],
)
def test_it_says_before_what_is_downloaded_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    boards: str,
    fetched: bool,
    said: str,
) -> None:
    monkeypatch.setenv("FLEET_CACHE", "/nowhere")
    monkeypatch.setattr(tools, "has_board_programs", lambda: False)
    found = {"": lambda: None, "tree": demo._tree, "userland": demo._userland}[boards]()
    demo._announce(Path("fleet-demo"), found, fetched=fetched)
    *_, downloads, where, last = capsys.readouterr().err.splitlines()
    assert last == said
    assert ("nothing is installed" in where) == bool(found or not fetched)
    names = {
        "QAIRT 2.51.0": not fetched,
        "userland": boards == "tree",
        "sshd": boards == "userland",
    }
    assert {name: name in downloads for name in names} == names


def test_the_line_of_the_build_only_grows_and_names_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, packages, then they are unpacked, and dpkg sets them up one by one."""
    monkeypatch.setenv("FLEET_CACHE", str(tmp_path))
    assert rootfs.progress() == ""
    part = rootfs._part(rootfs.rootfs_path())
    archives, known = rootfs.downloads(part) / "archives", part / "var/lib/dpkg/info"
    (archives / "partial").mkdir(parents=True)
    assert rootfs.progress() == "downloads the package lists"
    (archives / "a_1_all.deb").write_bytes(bytes(2_000_000))
    (archives / "partial/b_1_all.deb.FAILED").write_bytes(bytes(1_000_000))
    assert rootfs.progress() == "downloads packages, 3.0 MB"
    part.mkdir()
    assert rootfs.progress() == "unpacks the packages"
    known.mkdir(parents=True)
    for number in range(69):
        (known / f"p{number}.list").touch()
    assert rootfs.progress() == f"sets up 69 of {rootfs.TREE_PACKAGES} packages"
    for number in range(rootfs.TREE_PACKAGES + 1):
        (known / f"p{number}.list").touch()
    assert rootfs.progress() == f"sets up {rootfs.TREE_PACKAGES + 1} packages"


def test_the_program_is_named_so_that_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "npu-fleet"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(own), "demo"])
    assert demo._program() == (str(own), "")
    (tmp_path / "activate").touch()
    assert demo._program() == ("npu-fleet", f". {tmp_path}/activate")
    monkeypatch.chdir(tmp_path.parent)
    assert demo._program() == ("npu-fleet", f". {tmp_path.name}/activate")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo._program() == ("npu-fleet", "")
    monkeypatch.setattr(sys, "prefix", "/home/u/.cache/uv/archive-v0/x")
    monkeypatch.setattr(demo, "by_uvx", lambda: ["uvx", "--from", "npu-fleet @ file:///a b.whl"])
    assert demo._program() == ("uvx --from 'npu-fleet @ file:///a b.whl'", "")
    monkeypatch.setattr(demo, "by_uvx", list)
    assert demo._program() == (str(own), "")


def test_the_wheel_has_the_demo_and_both_programs(tmp_path: Path) -> None:
    """Built and installed as a user would, but for what it depends on: that is here."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith((".so", ".dll", ".whl", ".zip"))] == []
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "own")], check=True
    )
    own = tmp_path / "own/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(own), "install", "-q", "--no-deps"]
    subprocess.run([*install, "--no-index", str(wheel)], check=True, capture_output=True)
    (site,) = (tmp_path / "own").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(str(Path(pytest.__file__).parents[1]))
    env = {**os.environ, "PYTHONPATH": ""}
    for program in ("fleet", "npu-fleet"):
        done = subprocess.run(
            [tmp_path / "own/bin" / program, "--help"],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "demo" in done.stdout
    look = "from fleet.cli.demo import PARTS, shipped\nprint(*map(shipped, PARTS))"
    done = subprocess.run(
        [own, "-c", look], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    paths = [Path(text) for text in done.stdout.split()]
    assert all(path.exists() and path.is_relative_to(site) for path in paths)
    for part, path in zip(demo.PARTS, paths, strict=True):
        for file in [path] if path.is_file() else path.iterdir():
            own_file = ROOT / part if path.is_file() else ROOT / part / file.name
            assert file.read_bytes() == own_file.read_bytes()


@pytest.mark.qairt
def test_it_ends_with_boards_and_commands_that_work(
    tmp_path: Path, qairt_store: RuntimeStore
) -> None:
    if why := can_unshare():
        pytest.skip(f"no namespace boards here: {why}")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/runtimes").symlink_to(qairt_store.root)
    env = {**os.environ, "FLEET_HOME": str(tmp_path / "home")}
    program = Path(sys.executable).with_name("fleet")

    def typed(line: str, where: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], cwd=where, env=env, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip

    done = typed(f"{program} demo", tmp_path)
    lines = done.stderr.splitlines()
    try:
        assert done.returncode == 0, done.stderr
        assert "no download is needed" in lines[2]
        assert "gen tok/s" in done.stdout
        *tries, stop = lines[lines.index("The boards keep running. Try in fleet-demo:") + 1 :]
        *tries, about, longer, ab = tries
        assert about.startswith("Compare two prompts")
        before, move, *tries = [line.strip() for line in tries]
        assert before == f". {program.with_name('activate')}"
        move = f"{before} && {move}"
        assert len(tries) == 3
        for line in (*tries[:2], f"{tries[2]} --repeats 1 --warmups 0"):
            tried = typed(f"{move} && {line}", tmp_path)
            assert tried.returncode == 0, tried.stdout + tried.stderr
        misspelt = ab.replace("ttft_ms", "ttft")
        tried = typed(f"{move} && {longer} && {misspelt}", tmp_path)
        assert tried.returncode == 2, tried.stderr
        assert "try: --gate 'ttft_ms>+10%'" in tried.stderr
        elsewhere = tmp_path / "fleet-demo"
        other = typed(f"{program} lab down --dir other", elsewhere)
        assert "no lab is running in other, so there is nothing to stop" in other.stderr
        assert "; next: `fleet lab down --dir .lab`" in other.stderr
    finally:
        down = typed(f"{program} lab down --dir fleet-demo/.lab", tmp_path)
    assert down.returncode == 0
    assert "the lab is stopped" in down.stderr
    again = typed(f"{program} lab down --dir fleet-demo/.lab", tmp_path)
    assert "no lab is running in fleet-demo/.lab" in again.stderr
    assert stop == "Stop the boards: fleet lab down"
