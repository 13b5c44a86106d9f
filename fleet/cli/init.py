"""`fleet init`: first files for a new fleet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fleet.bundles.inspect import inspect_bundle
from fleet.cli import output
from fleet.cli.common import JsonOption
from fleet.config import scaffold
from fleet.config.scaffold import Seen
from fleet.lab import Lab
from fleet.lab.folder import Folder
from fleet.model.errors import BundleError, InputError
from fleet.transport.seen import adb_devices, config_hosts

README = """# A fleet

inventories/ names the devices, playbooks/ says what shall be true on them.

    fleet trust all -i {inventory}       # look at each host key, then pin it
    fleet facts -i {inventory}           # what the devices are
    fleet plan -i {inventory} {playbook}
    fleet deploy -i {inventory} {playbook}
"""
IGNORED = "*.known_hosts.lock\n*.part\n.lab/\nbundles/\n"


def register(root: typer.Typer) -> None:
    """Add `init`."""
    root.command()(init)


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make; `.` for this one.")],
    addresses: Annotated[
        list[str] | None, typer.Argument(help="Devices: [user@]host[:port] ...")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of inventory and playbook.")] = "boards",
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Folder of a bundle, to fill in the playbook.")
    ] = None,
    ssh_config: Annotated[
        Path | None, typer.Option("--ssh-config", help="An ssh config instead of your own.")
    ] = None,
    lab: Annotated[
        Path | None, typer.Option("--lab", help="Folder of a lab that is up, like .lab.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an inventory, a playbook and a folder from what can be seen: ssh config, adb, a lab.

    Example: fleet init my-boards ubuntu@10.0.0.7 ubuntu@10.0.0.8 --bundle ~/bundles/llama
    """
    if scaffold.safe_name(name) != name:
        raise InputError(f"'{name}' is no name for a file", hint="letters, digits, . _ -")
    devices = scaffold.unique(_devices(addresses or [], ssh_config, lab))
    inventory = folder / "inventories" / f"{name}.yaml"
    playbook = folder / "playbooks" / f"{name}.yaml"
    words = {"inventory": f"inventories/{name}.yaml", "playbook": f"playbooks/{name}.yaml"}
    files = {
        inventory: scaffold.inventory_text(devices),
        playbook: scaffold.playbook_text(name, *_bundle(bundle, playbook)),
        folder / "README.md": README.format(**words),
        folder / ".gitignore": IGNORED,
    }
    scaffold.write_all(files)
    scaffold.check(inventory, [one.name for one in devices if one.usable])
    if as_json:
        rows = [{"name": d.name, "about": d.about, "usable": d.usable} for d in devices]
        output.emit_json({"written": [str(one) for one in files], "devices": rows})
        return
    for path in files:
        output.say(f"wrote {path}")
    output.say(f"{sum(one.usable for one in devices)} devices, {_others(devices)}not usable yet")
    output.note(f"next: cd {folder} && fleet trust all -i {words['inventory']}")
    if bundle is None:
        output.note(f"then: name your bundle in {words['playbook']}")
    output.note(f"then: fleet plan -i {words['inventory']} {words['playbook']}")


def _others(devices: list[Seen]) -> str:
    return f"{sum(not one.usable for one in devices)} "


def _devices(addresses: list[str], ssh_config: Path | None, lab: Path | None) -> list[Seen]:
    found = [scaffold.from_address(one) for one in addresses]
    if lab is not None:
        found += _boards(lab)
    if addresses or lab is not None:
        return found
    more: dict[str, object] = {"ssh_config": str(ssh_config.absolute())} if ssh_config else {}
    for alias in config_hosts(ssh_config):
        about = f"from {ssh_config or '~/.ssh/config'}"
        name = scaffold.safe_name(alias)
        found.append(Seen(name, about, {**({"host": alias} if name != alias else {}), **more}))
    for serial, state, model in adb_devices():
        about = f"adb, {state}, {model or 'unknown model'}; fleet has no adb transport yet"
        values: dict[str, object] = {"transport": "adb", "serial": serial}
        found.append(Seen(scaffold.safe_name(serial), about, values, usable=False))
    return found


def _boards(folder: Path) -> list[Seen]:
    lab = Lab(Folder(folder))
    root = lab.folder.root
    shared: dict[str, object] = {
        "ssh_config": str(root / "ssh_config"),
        "known_hosts": str(root / "known_hosts"),
    }
    if (root / "password").exists():
        shared["become_password"] = f"file:{root / 'password'}"
    return [Seen(one.name, f"lab board, emulated ({one.profile})", shared) for one in lab.boards]


def _bundle(bundle: Path | None, playbook: Path) -> tuple[str, str]:
    """(value of `bundle:`, a comment on it)."""
    if bundle is None:
        return "../bundles/NAME-YOUR-BUNDLE", "Folder of a Genie bundle, beside this one."
    if not bundle.is_dir():
        raise BundleError(f"there is no bundle folder {bundle}", hint=f"ls {bundle.parent}")
    found = inspect_bundle(bundle)
    parts = ", ".join(f"{c.name} {c.size / 1e6:.0f} MB" for c in found.contexts[:4])
    about = f"{len(found.files)} files ({parts}), compiled with QAIRT {found.qairt or 'unknown'}"
    return os.path.relpath(bundle.resolve(), playbook.absolute().parent), about
