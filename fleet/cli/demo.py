"""`fleet demo`: a project with three lab boards, a deploy, a run and its profile."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.live import ticking
from fleet.config.nearest import FILE
from fleet.data import shipped
from fleet.lab import Lab
from fleet.lab.host import lab_needs, missing_message
from fleet.lab.namespace import can_unshare
from fleet.lab.rootfs import BUILD_MB, TREE_MB, cache_dir, progress, rootfs_path
from fleet.lab.tools import SSHD_MB, SSHD_TREE_MB, has_tools
from fleet.model.errors import InputError, LabError
from fleet.model.extras import by_uvx
from fleet.model.files import human_bytes
from fleet.model.home import fleet_home
from fleet.model.text import from_here
from fleet.runtimes.store import RuntimeStore

PARTS = ("assets/tiny-genie", "inventories/lab.yaml", "playbooks/tiny-genie.yaml")
PROJECT = "inventory: inventories/lab.yaml\nplaybook: playbooks/tiny-genie.yaml\n"
LONGER = (
    f"sed 's/prompt:.*/prompt: {' '.join(['What is fleet?'] * 4)}/' {PARTS[2]} "
    "> playbooks/longer.yaml"
)
QAIRT, TARGET, QAIRT_MB = "2.51.0", "x86_64-linux-clang", 99
BOARDS = STEPS = 3
_EACH = 10.0  # seconds between two lines if lines cannot be overwritten


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder to make.")] = Path("fleet-demo"),
) -> None:
    """Deploy, run and profile a model on three emulated boards, in a folder of their own.

    Example: fleet demo
    """
    if lacks := lab_needs():
        message, cure = missing_message(lacks)
        raise LabError(message, hint=cure)
    boards = _userland() if can_unshare() else _tree()
    _announce(folder, boards, fetched=_has_runtime())
    _write(folder)
    program, before = _program()
    os.chdir(folder)
    with _step(2, f"boot {BOARDS} boards", progress if boards else str):
        lab = Lab.up(Path(".lab"), count=BOARDS, base_port=0)
    output.note(f"     {BOARDS} {lab.boards[0].kind} boards answer over SSH")
    with _step(
        3,
        f"cd {shlex.quote(str(folder))} && fleet deploy --run (runs even if nothing changed)",
        str,
    ):
        from fleet.cli.main import build  # noqa: PLC0415 - it imports this module

        tree = build("deploy")
    output.advising = False  # `_end` prints the next steps, with working paths
    code = tree(["deploy", "--run"], standalone_mode=False)
    _end(folder, program, before)
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True)
class Download:
    """A download that the boards need: its description, megabytes, and seconds of further work."""

    what: str
    size: int
    work: int


def _tree() -> Download | None:
    """Return the download for boards with a userland of their own; None if it is already there."""
    if rootfs_path().is_dir():
        return None
    return Download(
        f"a Debian userland with apt, {BUILD_MB} MB ({TREE_MB} MB on disk)", BUILD_MB, 20
    )


def _userland() -> Download | None:
    """Return the download for boards that share this computer's userland; None if it is already
    there.
    """
    if has_tools():
        return None
    what = f"OpenSSH's sshd from Debian with apt, {SSHD_MB} MB ({SSHD_TREE_MB} MB on disk)"
    return Download(what, SSHD_MB, 5)


def _announce(folder: Path, boards: Download | None, *, fetched: bool) -> None:
    """Print the downloads (without QAIRT if it is `fetched`), their size and their duration."""
    parts = [f"QAIRT {QAIRT} from PyPI, {QAIRT_MB} MB (251 MB on disk)"] * (not fetched)
    parts += [boards.what] if boards else []
    output.note(
        "This demo runs three emulated boards on this computer; it needs no board and no NPU. "
        f"In {folder}:"
    )
    output.note("1/3  write a project   2/3  boot the boards   3/3  deploy, run, profile")
    if not parts:
        output.note("no download is needed; the demo takes about half a minute")
        return
    total = QAIRT_MB * (not fetched) + (boards.size if boards else 0)
    work = 35 + (boards.work if boards else 0)
    slow = (work + total) / 60
    output.note(f"the first demo downloads: {'; '.join(parts)}")
    output.note(f"they go to {cache_dir()} and {fleet_home()}; nothing is installed")
    output.note(
        f"the demo takes about {work + total // 10} s at 10 MB/s, {slow:.0f} minutes at 1 MB/s"
    )


def _has_runtime() -> bool:
    return RuntimeStore().lookup(QAIRT, TARGET) is not None


def _write(folder: Path) -> None:
    """Write the project; keep the project of an earlier demo unchanged. Raises InputError."""
    if (folder / FILE).is_file():
        output.note(f"1/3  {folder} exists already; fleet uses it as it is")
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"the folder {folder} exists already, but it is not a fleet project: it contains no "
            f"{FILE}",
            hint="fleet demo ANOTHER-FOLDER",
        )
    whole = folder.with_name(f"{folder.name}.part")  # an interrupted write leaves only this folder
    shutil.rmtree(whole, ignore_errors=True)
    for part in PARTS:
        source, target = shipped(part), whole / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    (whole / FILE).write_text(PROJECT, "utf-8")
    whole.replace(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    output.note(f"1/3  wrote {folder}: inventory, playbook, bundle, {human_bytes(size)}")


@contextmanager
def _step(number: int, text: str, doing: Callable[[], str]) -> Iterator[None]:
    """Show the seconds and `doing()` in one moving line while work without output is running."""
    begun = time.monotonic()
    terminal = output.on_terminal()
    output.note(f"{number}/{STEPS}  {text}")

    def tell() -> None:
        progress_text = ", ".join(
            part for part in (f"{time.monotonic() - begun:.0f} s", doing()) if part
        )
        if terminal:
            sys.stderr.write(f"\r\x1b[K     {progress_text}")
            sys.stderr.flush()
        else:
            output.note(f"     {progress_text}")

    try:
        with ticking(0.5 if terminal else _EACH, tell):
            yield
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[K")


def _end(folder: Path, fleet: str, before: str) -> None:
    """Print commands to try, a comparison, and how to stop the lab, ready to paste."""
    output.note(f"\nThe boards keep running. Try in {folder}:")
    for line in filter(None, (before, f"cd {shlex.quote(str(folder))}")):
        output.note(f"  {line}")
    output.note(f"  {fleet} profiles show last")
    output.note(f"  {fleet} doctor")
    output.note(f"  {fleet} run --repeats 10")
    output.note("Compare two prompts; it takes a minute or two:")
    output.note(f"  {LONGER}")
    output.note(f"  {fleet} ab playbooks/longer.yaml {PARTS[2]} --gate 'ttft_ms>+10%' -l lab001")
    output.note(f"Stop the boards: {fleet} lab down")


def _program() -> tuple[str, str]:
    """Return the command that starts this fleet, and a command that has to precede it.

    The name is enough if the shell finds it, or will find it after activating the environment. Else
    it is the path.
    """
    here = Path(sys.argv[0]).absolute()
    path = shutil.which(here.name)
    if "archive-v" in sys.prefix:  # uvx uses an environment in its cache, which is not on the PATH
        return shlex.join(by_uvx() or [str(here)]), ""
    if path and Path(path).absolute() == here:
        return here.name, ""
    activate = here.with_name("activate")
    if activate.is_file():
        return here.name, f". {shlex.quote(from_here(str(activate)))}"
    return shlex.quote(str(here)), ""
