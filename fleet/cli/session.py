"""`fleet config session`: adds a rented board to the inventory until its session ends."""

from __future__ import annotations

import getopt
import json
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import end_devices, hosts_of
from fleet.cli.results import emit, show_errors
from fleet.config.inventory import load_inventory
from fleet.config.yamlpos import read
from fleet.model.deadline import Deadline, parse_duration, utc_text
from fleet.model.errors import InputError, InventoryError, UnreachableError
from fleet.model.files import file_errors, written_whole

HEADER = "# Written by fleet config session; a host goes when its time is over.\n"
ADB_SERVER, ADBD = 5037, 5555  # the ports of a phone, behind a tunnel
_VALUED = "B:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:"  # options of ssh(1) with a value
_PLAIN = "1246AaCfGgKkMNnqsTtVvXxYy"
_NAMED = {"identityfile": "-i", "port": "-p", "proxyjump": "-J", "user": "-l"}  # of ssh -o
_LOOK_SECONDS = 15.0
_LIKE = "ssh -i KEY -L 2222:BOARD:22 -N sshtunnel@GATEWAY"


Line = Annotated[
    str | None,
    typer.Argument(metavar="LINE", help="The ssh command that the farm prints, in quotes."),
]
For = Annotated[str, typer.Option("--for", help="How long the session still lasts: 30m, 2h.")]
Key = Annotated[Path | None, typer.Option("--key", help="Private key, instead of that of LINE.")]
Password = Annotated[
    str | None,
    typer.Option("--password", metavar="REFERENCE", help="Login password: env:NAME, file:PATH"),
]
End = Annotated[
    str | None,
    typer.Option(
        "--end", metavar="HOST", help="Remove fleet's files from the board, and the host."
    ),
]


class FarmLine(NamedTuple):
    """The parts of a tunnel command. `local` is "" if the line has a placeholder for the port."""

    key: str
    local: str
    board: str
    port: int
    gateway: str


def session(
    inventory: opt.Inventory,
    line: Line = None,
    duration: For = "1h",
    key: Key = None,
    user: Annotated[str, typer.Option("--user", help="Login name on the board.")] = "root",
    password: Password = None,
    end: End = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Add a board by the hour from the tunnel command of a device farm, or end its session.

    The board's key is trusted for this session only, and nothing starts after its time.

    Example: fleet config session 'ssh -i qdc.pem -L 2222:sa1.svc:22 -N sshtunnel@GW' --for 1h
    Example: fleet config session --end sa1 -i session.yaml
    """
    if (line is None) == (end is None):
        raise InputError(
            "give either the tunnel command of the farm, or --end HOST",
            hint=f"fleet config session '{_LIKE}' --for 1h",
        )
    if end is not None:
        _end(inventory, end, as_json=as_json)
        return
    until = utc_text(time.time() + parse_duration(duration))
    login = {"user": user} | ({"password": password} if password else {})
    name, keys = _added(
        inventory, parsed_line(line or "", key), {"until": until, **login}, accept_new
    )
    if as_json:
        output.emit_json({"inventory": str(inventory), "name": name, **keys})
        return
    output.say(f"{name} is a host of {inventory} until {until}")
    if "host_key" in keys:
        output.say(f"its key {keys['host_key']} is trusted for this session only")
    output.advise(f"next: fleet selftest {name} -i {shlex.quote(str(inventory))}")


def _added(
    path: Path, line: FarmLine, keys: dict[str, Any], accept_new: bool
) -> tuple[str, dict[str, Any]]:
    """Write the host into the file, and return its name and its keys. Expired hosts are removed.

    The new host is not kept if the board or the gateway is not trusted or does not answer.
    """
    address = line.board.replace(".", "").isdecimal()  # 10.1.2.3: all boards of a net begin so
    name = line.board if address else line.board.partition(".")[0]
    if line.port in {ADB_SERVER, ADBD}:
        keys = {"until": keys["until"], **_phone(line)}
    else:
        keys = {"host": line.board, "port": line.port, "proxy_jump": line.gateway, **keys}
        keys["identity_file"] = line.key
    before = _changed(path, name, keys)
    try:
        keys |= _pinned(path, name, accept_new=accept_new)
        _changed(path, name, keys, tidy=True)
    except BaseException:
        _changed(path, name, before)
        raise
    return name, keys


def parsed_line(line: str, key: Path | None = None) -> FarmLine:
    """Return the parts of a command like `ssh -i KEY -L 2222:BOARD:22 -N USER@GATEWAY`.

    The form is that of Qualcomm Device Cloud in public repositories: port 22 of a board, or port
    5037 of a phone's adb server. Raises InputError for another form.
    """
    try:
        words = shlex.split(line.replace("\\\n", " "))
        pairs, rest = getopt.gnu_getopt(words[1:], _VALUED + _PLAIN)
    except (ValueError, getopt.GetoptError) as error:
        raise InputError(
            f"the line is no ssh command: {error}", hint=f"copy it: {_LIKE}"
        ) from error
    pairs = [_without_name(*pair) for pair in pairs]
    given = dict(reversed(pairs))  # ssh takes the first of two values
    parts = given.get("-L", "").split(":")
    named = Path(words[0]).stem == "ssh" if words else False
    if (
        not named
        or len(rest) != 1
        or len(parts) not in {3, 4}
        or not parts[-1].isdecimal()
        or [option for option, _ in pairs].count("-L") != 1
        or "-J" in given
    ):
        raise InputError(
            "the line is not a tunnel command with one -L PORT:BOARD:PORT and one gateway",
            hint=f"copy the line that the farm prints under Connect, like: {_LIKE}",
        )
    identity = str(key or given.get("-i", ""))
    if not Path(identity).expanduser().is_file():
        raise InputError(
            f"the private key {identity or '(the line names none)'} is not a file on this computer",
            hint="give the key that the farm made for the session: --key FILE",
        )
    port = f":{given['-p']}" if "-p" in given else ""
    gateway = rest[0] if "@" in rest[0] or "-l" not in given else f"{given['-l']}@{rest[0]}"
    local = parts[-3] if parts[-3].isdigit() else ""
    where = str(Path(identity).expanduser().absolute())
    return FarmLine(where, local, parts[-2], int(parts[-1]), gateway + port)


def _without_name(option: str, value: str) -> tuple[str, str]:
    """Return `-p 22` for `-o Port=22`, and other options unchanged."""
    name, _, given = value.replace("=", " ", 1).strip().partition(" ")
    short = _NAMED.get(name.lower()) if option == "-o" else None
    return (short, given.strip()) if short else (option, value)


def _pinned(path: Path, name: str, *, accept_new: bool) -> dict[str, str]:
    """Return the fingerprint of the board's key, read through the gateway; {} for a phone.

    Raises HostKeyError for a gateway that is not trusted yet, InventoryError for invalid values.
    """
    from fleet.transport.trust import offered_key  # noqa: PLC0415 - paramiko takes 0.2 s

    (host,) = (each for each in load_inventory(path).hosts if each.name == name)
    if host.phone:
        return {}
    return {"host_key": offered_key(host, accept_new=accept_new).fingerprint}


def _phone(line: FarmLine) -> dict[str, Any]:
    """Return the keys of the phone behind a running tunnel. Raises InputError, UnreachableError."""
    from fleet.transport.adbserver import AdbServer  # noqa: PLC0415 - only for phones

    if not line.local:
        raise InputError(
            "the line has no number for the local port",
            hint="write a free port into it, such as 5038, and start it in another terminal",
        )
    near = f"127.0.0.1:{line.local}"
    if line.port == ADBD:
        return {"transport": "adb", "serial": near}
    phones = AdbServer(near).devices(Deadline(_LOOK_SECONDS))
    if len(phones) != 1:
        raise UnreachableError(
            f"the adb server at {near} has {len(phones)} phones, not one",
            hint=f"fleet config phones --server {near}",
        )
    serial = phones[0].serial
    return {"transport": "adb", "adb_server": near, "serial": serial}


def _end(path: Path, name: str, *, as_json: bool) -> None:
    """Remove fleet's files from the board if its session still runs, and remove the host from the
    file.
    """
    from fleet.engine.budget import clean  # noqa: PLC0415 - loads the engine
    from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device  # noqa: PLC0415
    from fleet.engine.session import Session  # noqa: PLC0415

    if name not in _hosts(path):
        raise InputError(
            f"{path} has no session of '{name}'",
            hint=f"fleet config list {shlex.quote(str(path))}",
        )
    (host,) = hosts_of(path, None, [name])
    gone = host.until is not None and host.until < time.time()

    def work(session: Session, result: DeviceResult[None]) -> None:
        clean(session.host, session.transport)
        result.outcome, result.text = "changed", "fleet's files are removed from the board"

    results = on_every_device(
        [] if gone else [replace(host, until=None)], work, lambda _: None, PoolOptions()
    )
    if all(result.fine for result in results):
        _changed(path, name, None)
    if gone:
        results = [DeviceResult(host, "ok", "the session was over: the farm has the board again")]
    if as_json:
        emit(results, "text", "error")
    else:
        rows = [(r.host.name, r.outcome, "see below" if r.error else r.text) for r in results]
        output.table("session", ("device", "outcome", "result"), rows)
        show_errors(results)
    end_devices(results)


def _hosts(path: Path) -> dict[str, Any]:
    """Return the hosts in a file of this command. Raises InventoryError for another file."""
    if not path.exists():
        return {}
    with file_errors(path):
        ours = path.read_text("utf-8", "replace").startswith(HEADER)
    if not ours:
        raise InventoryError(
            f"fleet does not change {path}, because fleet did not write this file",
            hint="give the sessions a file of their own: -i session.yaml",
        )
    hosts = dict(read(path, InventoryError).data["all"]["hosts"])
    for name, keys in hosts.items():
        if "until" not in (keys or {}):
            raise InventoryError(
                f"{name} in {path} has no `until:`, so it is no session",
                hint="move it into an inventory of your own, and sessions stay in this file",
            )
    return hosts


def _lasts(keys: dict[str, Any]) -> bool:
    return str(keys["until"]) > utc_text()


def _changed(
    path: Path, name: str, keys: dict[str, Any] | None, *, tidy: bool = False
) -> dict[str, Any] | None:
    """Write one host (None: without it) next to the other hosts, and return its previous keys.
    `tidy` also removes the expired hosts.
    """
    from fleet.transport.hostkeys import locked  # noqa: PLC0415 - paramiko takes 0.2 s

    with locked(path):
        hosts = _hosts(path)
        before: dict[str, Any] | None = hosts.pop(name, None)
        if tidy:
            hosts = {other: each for other, each in hosts.items() if _lasts(each)}
        if keys is not None:
            hosts[name] = keys
        _write(path, hosts)
    return before


def _write(path: Path, hosts: dict[str, Any]) -> None:
    """Write the file, or remove it if no session is left."""
    lines = [f"    {json.dumps(name)}: {json.dumps(keys)}\n" for name, keys in hosts.items()]
    if not hosts:
        with file_errors(path, "write"):
            path.unlink(missing_ok=True)
        return
    with written_whole(path) as part:
        part.write_text(f"{HEADER}all:\n  hosts:\n{''.join(lines)}", "utf-8")
