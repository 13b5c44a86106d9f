"""README's lines "With real boards" and the tutorial, as they stand, on lab boards of those names.

Two things are put in around them, nothing in them: an ~/.ssh/config in which the names of the
block are the addresses of lab boards, as they would be those of real ones, and a person at a
terminal who says yes to the host keys.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from fleet.runtimes.store import RuntimeStore
from tests.hinting import refusals

ROOT = Path(__file__).parents[2]
SECONDS = 900
MARK = "@@ line "
NEW_ENOUGH = "import sys, venv; sys.exit(sys.version_info < (3, 11))"


def lines() -> list[str]:
    """The block of README, line by line."""
    text = (ROOT / "README.md").read_text("utf-8").partition("## With real boards\n")[2]
    return text.partition("```sh\n")[2].partition("```")[0].splitlines()


def tutorial() -> list[str]:
    """Every line of every shell block."""
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    return "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).splitlines()


def on_the_lab(lab: Path) -> list[str]:
    """What step 6 says of lab boards, with this lab in the place of the demo's."""
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8").partition("## 6. ")[2]
    words = re.findall(r"`(fleet [^`]*\blab002\b[^`]*)`", text.partition("## 7. ")[0])
    return [word.replace("../fleet-demo/.lab", str(lab)) for word in words]


def names(script: list[str]) -> list[str]:
    (init,) = [line for line in script if line.startswith("fleet init ")]
    return re.findall(r"\bevk-[a-z0-9-]+", init)


@pytest.fixture
def home(tmp_path: Path, qairt_store: RuntimeStore) -> Iterator[Path]:
    """A home folder with a lab behind the names of the block."""
    if why := can_unshare():
        pytest.skip(f"no namespace boards here: {why}")
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".fleet").mkdir()
    (folder / ".fleet" / "runtimes").symlink_to(qairt_store.root)
    hosts = names(tutorial())
    with Lab.up(tmp_path / "lab", count=len(hosts), base_port=0) as lab:
        config = []
        for name, board in zip(hosts, lab.boards, strict=True):
            config += [
                f"Host {name}", "  HostName 127.0.0.1", f"  Port {board.port}",
                f"  User {board.user}", f"  IdentityFile {lab.folder.identity_file}",
            ]  # fmt: skip
        (folder / ".ssh" / "config").write_text("\n".join(config) + "\n")
        yield folder


def path_of() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def clone(folder: Path) -> Path:
    """What git has, where a newcomer would have it."""
    listed = ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, found.decode().split("\0")):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    return folder


def typed(script: list[str], where: Path, home: Path, path: str) -> tuple[int, str]:
    """One shell, as a person has it; the exit code of the first line that fails, and all output."""
    text = "\n".join(f"echo '{MARK}{n}' && {line}" for n, line in enumerate(script, 1))
    person, terminal = os.openpty()
    try:
        os.write(person, b"y\n" * len(names(tutorial())))
        done = subprocess.run(
            ["bash", "-e", "-c", text], cwd=where, stdin=terminal, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS,
            env={
                "HOME": str(home), "FLEET_HOME": str(home / ".fleet"), "PATH": path,
                "NO_COLOR": "1", "LANG": "C.UTF-8", "PIP_REQUIRE_VIRTUALENV": "1",
                **{key: value for key, value in os.environ.items() if "PROXY" in key.upper()
                   or key.startswith(("PIP_", "SSL_", "UV_"))},
            },
        )  # fmt: skip
    finally:
        os.close(person)
        os.close(terminal)
    hints = [line for line in done.stdout.splitlines() if "try:" in line or "next:" in line]
    wrong = [said for line in hints for said in refusals(line)]
    assert not wrong, wrong
    return done.returncode, done.stdout


def check(code: int, said: str, where: Path, count: int) -> None:
    assert code == 0, f"{lines()[said.count(MARK) - 1]}\n{said[-3000:]}"
    assert said.count(MARK) == count
    for name in names(lines()):
        assert re.search(rf"{name} .*\bchanged\b", said), said
        assert re.search(rf"{name} .*\binstalled\b", said), said
    assert "is finished" in said
    assert list(where.rglob("fleet.lock"))


@pytest.mark.qairt
def test_the_lines_after_the_installation(home: Path, tmp_path: Path) -> None:
    install, *others = lines()
    assert "pip install ." in install
    where = tmp_path / "clone"
    where.mkdir()
    (where / "assets").symlink_to(ROOT / "assets")
    code, said = typed(others, where, home, path_of())
    check(code, said, where, len(others))


@pytest.mark.qairt
def test_the_tutorial_ends_in_a_comparison(home: Path, tmp_path: Path) -> None:
    where = tmp_path / "clone"
    where.mkdir()
    (where / "assets").symlink_to(ROOT / "assets")
    code, said = typed(tutorial(), where, home, path_of())
    assert code == 0, f"{tutorial()[said.count(MARK) - 1]}\n{said[-3000:]}"
    assert said.count(MARK) == len(tutorial())
    _, _, compared = said.partition("A playbooks/longer.yaml, B playbooks/boards.yaml")
    table, _, doctor = compared.partition(MARK)
    first, *_ = names(tutorial())
    row = rf"^{first} +\| ttft_ms +\| \S+ × faster +\| .* \| pass "
    assert re.search(row, table, re.MULTILINE), compared
    for name in names(tutorial()):
        assert re.search(rf"{name} +healthy", doctor), doctor
    project = ["fleet init demo --lab ../lab --bundle assets/tiny-genie", "cd demo"]
    on_boards = on_the_lab(tmp_path / "lab")
    assert len(on_boards) == 4, on_boards
    code, said = typed([*project, *on_boards], where, home, path_of())
    assert code == 0, said
    assert re.search(r"lab002 +\| fastrpc-node-permission \| provision \| healed", said), said
    assert re.search(r"lab002 +\| changed \| the system is as before", said), said
    assert "fleet would undo these steps" in said, "undo asks"
    assert "lab002 no longer has the fault" in said


@pytest.mark.slow
@pytest.mark.qairt
def test_every_line_and_an_extra_by_its_hint(home: Path, tmp_path: Path) -> None:
    where = clone(tmp_path / "clone")
    report = "fleet profiles report last --output r.html"
    path = "/usr/bin:/bin:/usr/sbin:/sbin"  # the system's own Python: Debian's refuses a bare pip
    if subprocess.run(["/usr/bin/python3", "-c", NEW_ENOUGH], check=False).returncode:
        pytest.skip("the python3 of this system is older than 3.11, or there is none")
    code, said = typed([*lines(), f"{report} 2>hint"], where, home, path)
    check(code, said, where, len(lines()) + 1)
    told = (where / "my-boards" / "hint").read_text()
    hint = told.partition("the charts of heat, operations and history; to add them: ")[2].partition(
        "\n"
    )[0]
    assert hint.startswith(f"{where}/.venv/bin/python"), hint
    again = ["cd my-boards", ". ../.venv/bin/activate", hint, report]
    code, said = typed(again, where, home, path)
    assert code == 0, said[-3000:]
