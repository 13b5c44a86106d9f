"""`fleet lab`: emulated boards, without hardware."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output, project
from fleet.cli.options import App
from fleet.config.inventory import load_inventory
from fleet.lab import Lab, LabPhones
from fleet.lab.folder import PHONES, Board, LabFolder
from fleet.lab.lab import FAULTS, PHONE_FAULT_NAMES
from fleet.lab.profiles import phone_profiles
from fleet.model.errors import FleetError, InputError, LabError, RuntimeStoreError
from fleet.runtimes.select import select_files
from fleet.runtimes.store import RuntimeStore


class _Commands(typer.core.TyperGroup):
    """The commands, with hints for names that other programs use."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's click
        if args and args[0] in ELSEWHERE:
            raise InputError(
                f"there is no command `fleet lab {args[0]}`",
                hint=f"fleet lab {ELSEWHERE[args[0]]}",
            )
        return super().resolve_command(ctx, args)


ELSEWHERE = {"status": "list", "ps": "list", "ls": "list", "stop": "down", "start": "up"}
app = App(
    cls=_Commands, no_args_is_help=True, help="Start emulated boards and phones on this computer."
)
STOCK_TARGET = "aarch64-oe-linux-gcc11.2"
STOCK_BUNDLE = Path("assets/tiny-genie")
_STOCK_ARCH = "v73"  # the arch of the chip that the default boards report

DirOption = Annotated[Path, typer.Option("--dir", help="Folder for the files of the lab.")]
DEFAULT_DIR = Path(".lab")
NEW_HOST_KEY = "new-host-key"
_BOARD = "Name of a board or phone, as `fleet lab list` shows it."
NameArgument = Annotated[str, typer.Argument(metavar="BOARD", help=_BOARD)]
BoardOption = Annotated[str, typer.Option("--limit", "-l", metavar="BOARD", help=_BOARD)]
FaultArgument = Annotated[
    str,
    typer.Argument(
        show_default=False,
        help=f"Fault of a board: {', '.join([*FAULTS, NEW_HOST_KEY])}. Fault of a "
        f"phone: {', '.join(PHONE_FAULT_NAMES)}.",
    ),
]


def _lab(folder: Path) -> Lab:
    return Lab(LabFolder(folder))


def _running(folder: Path) -> Lab:
    """Return the lab of this folder. Raises LabError if it is down and a lab runs in another
    folder.
    """
    lab = _lab(folder)
    if not lab.alive() and (others := _folders()):
        where = shlex.quote(str(others[0]))
        raise LabError(
            f"no lab is running in {folder}, but one is running in {where}",
            hint=f"give its folder to the same command: --dir {where}",
        )
    return lab


Kind = Annotated[
    str,
    typer.Option(
        help="How each board is isolated: namespace (own network, needs root), user (plain "
        "processes), or auto (namespace for root, else user)."
    ),
]
Arch = Annotated[
    str,
    typer.Option(help="CPU of the boards: arm64 (emulated). Default: the CPU of this computer."),
]
PhoneKind = Annotated[
    str,
    typer.Option(
        help="Emulated phone: phone (the real program adbd, needs root), phone-emulator "
        "(a stand-in for adbd), or auto (phone where possible)."
    ),
]


@app.command()
def up(
    count: Annotated[int, typer.Option(min=0, max=500, help="Number of boards.")] = 3,
    profile: Annotated[str, typer.Option(help="Board type: bare-evk, FILE.yaml, ...")] = "iq9075",
    kind: Kind = "auto",
    arch: Arch = "",
    kernel: Annotated[
        bool, typer.Option("--kernel", help="Give each board its own Linux kernel (needs root).")
    ] = False,
    port: Annotated[int, typer.Option(help="TCP port of the first board; 0 takes free ports.")] = 0,
    phones: Annotated[int, typer.Option(min=0, max=200, help="Number of phones.")] = 0,
    phone_profile: Annotated[
        str, typer.Option(help="Phone types, joined with commas: " + ", ".join(phone_profiles()))
    ] = "sm8650",
    phone_kind: PhoneKind = "auto",
    phone_port: Annotated[
        int, typer.Option(help="Port of the first phone; 0 takes free ports.")
    ] = 0,
    folder: DirOption = DEFAULT_DIR,
    as_json: opt.Json = False,
) -> None:
    """Start emulated boards and phones on this computer, with an adb server of their own.

    Example: fleet lab up --count 3 --phones 2
    """
    lab = Lab.up(
        folder,
        count=count,
        profile=profile,
        kind=_kind(kind, arch, kernel=kernel),
        base_port=port,
        phones=LabPhones(phones, phone_profile, phone_kind, phone_port),
    )
    if as_json:
        every = {"boards": lab.boards, "phones": lab.phones, "adb_server": lab.adb_server}
        output.emit_json({"emulated": True, **every})
        return
    _tell(lab)


def _kind(kind: str, arch: str, *, kernel: bool) -> str:
    asked = [name for name, wanted in (("kernel", kernel), ("arm64", arch)) if wanted]
    if arch not in {"", "arm64"}:
        raise InputError(f"lab boards cannot emulate the CPU '{arch}'", hint="--arch arm64")
    if len(asked) > 1 or (asked and kind != "auto"):
        raise InputError(
            "--arch, --kernel and --kind cannot be combined",
            hint="give only one of these options",
        )
    return asked[0] if asked else kind


def _tell(lab: Lab) -> None:
    for group in filter(None, (lab.boards, lab.phones)):
        types = ", ".join(dict.fromkeys(board.profile for board in group))
        output.note(f"{_count(group)}, emulated ({types}): {_span(group)}")
    if lab.phones:
        output.note(f"their adb server: adb -P {lab.adb_server.rpartition(':')[2]} devices")
    if any(board.upper == "memory" for board in (*lab.boards, *lab.phones)):
        output.note(
            "`fleet lab power-cycle` will delete the files of these boards, because this file "
            "system does not support overlays"
        )
    output.note(f"next: {_next(lab)}")


def _count(group: list[Board]) -> str:
    """Return how many boards or phones of one kind are up."""
    kind, what = group[0].kind, "phone" if group[0].kind in PHONES else "board"
    name = (
        what
        if kind == what
        else f"emulated {what}"
        if kind == "phone-emulator"
        else f"{kind} {what}"
    )
    return f"{len(group)} {name}{'s' * (len(group) != 1)} up"


def _span(group: list[Board]) -> str:
    """Return the names and ports of the first and the last board."""
    first, last = group[0], group[-1]
    here = f"{first.name} on 127.0.0.1:{first.port}"
    return here if first is last else f"{here} to {last.name} on port {last.port}"


def _next(lab: Lab) -> str:
    """Return the next command: a deploy if this folder has the playbook, as in a clone."""
    inventory, playbook = shlex.quote(str(lab.inventory)), "playbooks/tiny-genie.yaml"
    if lab.boards and Path(playbook).is_file():
        return f"fleet deploy -i {inventory} {playbook}"
    return f"fleet facts -i {inventory}"


@app.command()
def down(folder: DirOption = DEFAULT_DIR) -> None:
    """Stop the boards and delete their files.

    Example: fleet lab down
    """
    lab = _lab(folder)
    there = lab.alive()
    lab.close()
    output.note(
        "the lab is stopped"
        if there
        else (f"no lab is running in {folder}, so there is nothing to stop{_others()}")
    )


def _others() -> str:
    """Return a hint with the command for each lab that runs in another folder."""
    commands = [f"`fleet lab down --dir {shlex.quote(str(folder))}`" for folder in _folders()]
    return f"; next: {', '.join(commands)}" if commands else ""


def _folders() -> list[Path]:
    """Return the folders of running labs.

    They are searched among the folders of the keys in the project's inventory, and in folders near
    this one.
    """
    around = (Path(), *(Path(up) for up in ("..", "../..")))
    folders = [place / name for place in around for name in (".lab", "fleet-demo/.lab")]
    with contextlib.suppress(FleetError):
        if inventory := project.supplied("inventory"):
            keys = {key for host in load_inventory(inventory).hosts for key in host.identity_files}
            folders = [*(Path(os.path.relpath(key.parent)) for key in sorted(keys)), *folders]
    labs = {f.resolve(): f for f in reversed(folders) if f.is_dir() and _lab(f).alive()}
    return list(reversed(labs.values()))


@app.command("list")
def list_boards(folder: DirOption = DEFAULT_DIR, as_json: opt.Json = False) -> None:
    """Show the boards.

    Example: fleet lab list
    """
    lab = _running(folder)
    boards = [*lab.boards, *lab.phones]
    if as_json:
        output.emit_json(boards)
        return
    drops = ("emulated", "user", "kind", "profile")
    rows = [
        (b.name, "up" if b.running else "down", b.kind, b.profile, b.port, b.user, "yes")
        for b in boards
    ]
    heads = ("board", "state", "kind", "profile", "port", "user", "emulated")
    output.table("lab", heads, rows, drops)


@app.command()
def reset(name: NameArgument, folder: DirOption = DEFAULT_DIR) -> None:
    """Reset a board to its first state.

    Example: fleet lab reset lab002
    """
    _running(folder).reset(name)


@app.command("power-cycle")
def power_cycle(name: NameArgument, folder: DirOption = DEFAULT_DIR) -> None:
    """Cut the power of a board and boot it again. Its files stay.

    Example: fleet lab power-cycle lab002
    """
    _running(folder).power_cycle(name)


@app.command()
def inject(name: BoardOption, what: FaultArgument = "", folder: DirOption = DEFAULT_DIR) -> None:
    """Inject a fault into a board.

    Example: fleet lab inject node-root-only -l lab002
    """
    _running(folder).fault(name, what)
    output.note(f"{name} has the fault {what} now")
    where = "" if folder == DEFAULT_DIR else f" --dir {shlex.quote(str(folder))}"
    output.note(f"to take it away: fleet lab heal {what} -l {name}{where}")


@app.command()
def heal(name: BoardOption, what: FaultArgument = "", folder: DirOption = DEFAULT_DIR) -> None:
    """Remove a fault from a board.

    Example: fleet lab heal node-root-only -l lab002
    """
    _running(folder).heal(name, what)
    output.note(f"{name} no longer has the fault {what}")


@app.command()
def stock(
    name: NameArgument,
    qairt: Annotated[
        str, typer.Option(help="QAIRT version to copy, from the runtime store.")
    ] = "2.51.0",
    target: Annotated[str, typer.Option(help="QAIRT target of the files.")] = STOCK_TARGET,
    bundle: Annotated[Path, typer.Option(help="Bundle folder to copy.")] = STOCK_BUNDLE,
    folder: DirOption = DEFAULT_DIR,
) -> None:
    """Copy a runtime and a bundle to ~/npu of a board, as if by hand.

    Example: fleet lab stock lab001; fleet doctor -i inventories/lab.yaml -l lab001 --folder npu
    """
    lab = _running(folder)
    runtime = RuntimeStore().find(qairt, target)
    if runtime is None:
        raise RuntimeStoreError(
            f"the runtime store has no QAIRT {qairt} for the target {target}",
            hint=f"fleet runtime fetch {qairt} --target {target}",
        )
    files = {file.name: file.source for file in select_files(runtime, target, _STOCK_ARCH).files}
    files |= {f"bundle/{path.name}": path for path in bundle.iterdir() if path.is_file()}
    place = lab.stock(name, files)
    output.note(f"{len(files)} files of QAIRT {qairt} ({target}) and {bundle.name} in {place}")
    output.note(f"next: fleet doctor -i {shlex.quote(str(lab.inventory))} -l {name} --folder npu")


@app.command("profile")
def profile_of(
    archive: Annotated[Path, typer.Argument(help="Archive that `fleet selftest` wrote (.tar.gz).")],
    device: Annotated[
        int, typer.Option(min=1, help="Number of the device in the archive; the first is 1.")
    ] = 1,
    target: Annotated[Path, typer.Option("--output", help="File to write.")] = Path(
        "recorded.yaml"
    ),
) -> None:
    """Make a board type from the answers of a real board in `fleet selftest`.

    Example: fleet lab profile selftest-qcs9075-2026-11-23.tar.gz --output qcs9075.yaml
    """
    from fleet.lab.recorded import recorded  # noqa: PLC0415 - tar

    text, lacking = recorded(archive, device)
    if target.exists():
        raise InputError(
            f"the file {target} exists already", hint="name another file: --output FILE"
        )
    target.write_text(text, "utf-8")
    if lacking:
        output.say(lacking)
    if "properties:" in text:
        output.note(f"next: fleet lab up --phone-profile {shlex.quote(str(target))}")
    else:
        output.note(f"next: fleet lab up --profile {shlex.quote(str(target))}")


@app.command("exec")
def exec_on(
    name: BoardOption,
    argv: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.")],
    folder: DirOption = DEFAULT_DIR,
) -> None:
    """Run a program on a board as root, without ssh.

    Example: fleet lab exec -l lab001 -- ls -l /dev
    """
    done: subprocess.CompletedProcess[str] = _running(folder).exec(name, argv)
    typer.echo(done.stdout, nl=False)
    typer.echo(done.stderr, nl=False, err=True)
    raise typer.Exit(done.returncode)
