"""`fleet init`: first files for a new fleet."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.bundles.inspect import inspect_bundle
from fleet.cli import options as opt
from fleet.cli import output
from fleet.config.nearest import FILE as PROJECT
from fleet.config.scaffold import (
    FoundDevice,
    from_address,
    inventory_text,
    is_address,
    playbook_text,
    project_text,
    read_back,
    safe_name,
    tried,
    unique,
    write_all,
)
from fleet.config.schema import Kind, schema
from fleet.engine.pool import PoolOptions, on_every_device
from fleet.engine.states import gather_facts
from fleet.lab import Lab
from fleet.lab.folder import LabFolder
from fleet.model.errors import BundleError, InputError
from fleet.model.facts import Facts
from fleet.model.inventory import ADB
from fleet.transport.seen import USER_CONFIG, adb_devices, config_hosts

AT_A_TIME = 16
README = """# A fleet

fleet.yaml says which inventory and playbook commands use, inventories/ names the devices,
playbooks/ says what shall be true on them. Editors check the files by schemas/.

    fleet trust all       # look at each host key, then pin it
    fleet facts           # what the devices are
    fleet plan
    fleet deploy
"""
IGNORED = "*.known_hosts.lock\n*.part\n.lab/\nbundles/\n"


Bundle = Annotated[
    Path | None,
    typer.Option(help="Folder of the compiled model; fleet writes its path into the new playbook."),
]
LabOption = Annotated[
    Path | None,
    typer.Option(
        help="Also write the emulated boards of `fleet lab up` into the inventory; "
        "value: its folder, .lab."
    ),
]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe",
        help="Connect to the devices, and write what they are as comments into the inventory.",
    ),
]


def init(
    folder: Annotated[Path, typer.Argument(help="Folder; default: this one.")] = Path(),
    addresses: Annotated[
        list[str] | None,
        typer.Argument(help="Devices to add, each \\[user@]host[:port]."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="File name for the new inventory and playbook, without .yaml.")
    ] = "boards",
    bundle: Bundle = None,
    ssh_config: Annotated[
        Path | None, typer.Option(help="Read this ssh config instead of ~/.ssh/config.")
    ] = None,
    lab: LabOption = None,
    probe: Probe = False,
    as_json: opt.Json = False,
) -> None:
    """Create a project with fleet.yaml, inventory and playbook, from ssh config, adb and labs.

    Example: fleet init my-boards ubuntu@10.0.0.7 ubuntu@10.0.0.8 --bundle ~/bundles/llama
    """
    _check(folder, name)
    inventory = folder / "inventories" / f"{name}.yaml"
    playbook = folder / "playbooks" / f"{name}.yaml"
    devices = unique(map(tried, _devices(addresses or [], ssh_config, lab)))
    if probe:
        devices = _probed(devices, inventory.with_suffix(".known_hosts"))
    read_back(devices)
    own = (f"inventories/{name}.yaml", f"playbooks/{name}.yaml")
    files = {
        folder / PROJECT: project_text(*own),
        inventory: inventory_text(devices),
        playbook: _playbook(name, bundle, playbook),
        folder / "README.md": README,
        folder / ".gitignore": IGNORED,
        **_schemas(folder / "schemas"),
    }
    write_all(files)
    if as_json:
        names = ("name", "about", "usable", "facts")
        rows = [{name: getattr(device, name) for name in names} for device in devices]
        output.emit_json({"written": [str(path) for path in files], "devices": rows})
        return
    for path in files:
        output.say(f"wrote {path}")
    output.say(_count(devices))
    _next(folder, own[1], lacks_bundle=bundle is None, trusted=bool(lab and not addresses))


def _schemas(folder: Path) -> dict[Path, str]:
    kinds: tuple[Kind, ...] = ("project", "inventory", "playbook")
    return {folder / f"{kind}.json": json.dumps(schema(kind), indent=1) + "\n" for kind in kinds}


def _check(folder: Path, name: str) -> None:
    # The name of a release (docs/playbook.md), short enough for the ending ".known_hosts.lock".
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise InputError(
            f"--name '{name}' is not a valid name",
            hint="use only letters, digits and . _ -, and begin with a letter or digit",
        )
    if is_address(str(folder)) and not folder.is_dir():
        raise InputError(
            f"'{folder}' is an address, but the first argument must be the folder",
            hint=f"fleet init . {shlex.quote(str(folder))}",
        )


def _count(devices: list[FoundDevice]) -> str:
    idle = sum(not device.usable for device in devices)
    more = f"; {idle} devices cannot be used now and were written as comments" if idle else ""
    return f"{len(devices) - idle} devices{more}"


def _next(folder: Path, playbook: str, *, lacks_bundle: bool, trusted: bool) -> None:
    move = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    output.note(f"next: {move}fleet {'facts' if trusted else 'trust all'}")
    if lacks_bundle:
        output.note(f"then: write the path of your bundle into {playbook}")
    output.note("then: fleet plan")


def _devices(addresses: list[str], ssh_config: Path | None, lab: Path | None) -> list[FoundDevice]:
    """Return the requested devices; without a request, all that ssh and adb know."""
    devices = [from_address(address) for address in addresses]
    if lab is not None:
        devices += _boards(lab)
    if ssh_config is not None:
        devices += _aliases(ssh_config)
    if devices or lab is not None or ssh_config is not None:
        return devices
    devices += _aliases(None)
    for serial, state, model in adb_devices():
        about = f"adb, {state}, {model or 'unknown model'}"
        values: dict[str, object] = {"transport": ADB.name, "serial": serial}
        devices.append(FoundDevice(safe_name(serial), about, values, usable=state == "device"))
    if Lab(LabFolder(Path(".lab"))).alive():
        output.note("a lab is running in this folder; to include its boards: --lab .lab")
    return devices


def _aliases(config: Path | None) -> list[FoundDevice]:
    devices = []
    for alias in config_hosts(config):
        name = safe_name(alias)
        values: dict[str, object] = {} if name == alias else {"host": alias}
        if config is not None:
            values["ssh_config"] = str(config.absolute())
        devices.append(FoundDevice(name, f"from {config or USER_CONFIG.expanduser()}", values))
    return devices


def _boards(folder: Path) -> list[FoundDevice]:
    lab = Lab(LabFolder(folder))
    root = lab.folder.root
    shared: dict[str, object] = {
        "ssh_config": str(root / "ssh_config"),
        "known_hosts": str(root / "known_hosts"),
    }
    if (root / "password").exists():
        shared["become_password"] = f"file:{root / 'password'}"
    devices = [
        FoundDevice(b.name, f"lab board, emulated ({b.profile})", shared) for b in lab.boards
    ]
    for phone in lab.phones:
        values: dict[str, object] = {"transport": ADB.name, "adb_server": lab.adb_server}
        values["serial"] = phone.serial
        devices.append(FoundDevice(phone.name, f"lab phone, emulated ({phone.profile})", values))
    return devices


def _probed(devices: list[FoundDevice], known_hosts: Path) -> list[FoundDevice]:
    """Return the devices with their own reports. A device that does not answer stays unchanged."""
    targets = {device.name: device for device in devices}
    hosts = [
        host
        if "known_hosts" in targets[host.name].values
        else replace(host, known_hosts=known_hosts)
        for host in read_back(devices)
    ]
    options = PoolOptions[Facts](parallel=AT_A_TIME)
    for result in on_every_device(hosts, gather_facts, lambda _: None, options):
        device = targets[result.host.name]
        facts = result.value
        if facts is None:
            output.note(f"{device.name} did not answer: {result.text}")
            targets[device.name] = replace(
                device, about=f"{device.about}; fleet did not connect to it"
            )
            continue
        kind = "emulated" if facts.emulated else facts.soc.hexagon_arch or "unknown Hexagon"
        reported = [facts.soc.model or "unknown board", facts.os_name or "unknown OS", kind]
        keys = {"soc": facts.soc.chip, "identity": facts.serial_number or facts.machine_id}
        targets[device.name] = replace(
            device,
            about=f"{device.about}; reports: {', '.join(reported)}",
            facts={key: value for key, value in keys.items() if value},
        )
    return list(targets.values())


def _playbook(name: str, bundle: Path | None, playbook: Path) -> str:
    if bundle is None:
        about = "Folder of a Genie bundle: write the path of your bundle here."
        return playbook_text(name, "../bundles/NAME-YOUR-BUNDLE", about)
    if not bundle.is_dir():
        raise BundleError(f"the bundle folder {bundle} does not exist", hint=f"ls {bundle.parent}")
    details = inspect_bundle(bundle)
    if not details.usable:
        output.note(f"warning: the bundle is not usable yet: fleet bundle inspect {bundle}")
    parts = ", ".join(f"{c.name} {c.size / 1e6:.1f} MB" for c in details.contexts[:4])
    here = os.path.relpath(bundle.resolve(), playbook.parent.resolve())
    # AI Hub's bundles contain a prompt in the model's chat template, which a bare question lacks.
    sample = bundle / "sample_prompt.txt"
    return playbook_text(
        name,
        here,
        f"{len(details.files)} files ({parts})",
        qairt=details.qairt or "unknown",
        prompt=str(Path(here, sample.name)) if sample.is_file() else "",
    )
