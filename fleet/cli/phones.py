"""`fleet config phones`: the phones that adb lists, and how to connect or pair one."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, InputError, UnreachableError

ServerOption = Annotated[
    str | None,
    typer.Option(
        help="Address of the adb server, such as localhost:5037. Default: that of the program adb."
    ),
]
ConnectOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Connect adb to a phone over TCP. Deploys do this by themselves for `serial: "
        "HOST:PORT`.",
    ),
]
PairOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Pair with wireless debugging, at the address and with the code of six digits that "
        "the phone shows. fleet asks for the code, or takes it from FLEET_PAIRING_CODE.",
    ),
]
CODE = "FLEET_PAIRING_CODE"
LOOK_SECONDS = 25.0  # a server that has to be started takes some seconds
CONNECT_SECONDS = 15.0
PAIR_SECONDS = 30.0


def phones(
    connect: ConnectOption = None,
    pair: PairOption = None,
    server: ServerOption = None,
    as_json: opt.Json = False,
) -> None:
    """List phones with serial, state, USB path and model, and how to correct a bad state.

    Pairing uses another port than connecting.

    Example: fleet config phones
    Example: fleet config phones --connect 10.0.0.21:5555
    Example: fleet config phones --pair 10.0.0.21:37123
    """
    if connect and pair:
        raise InputError("--connect and --pair cannot be combined", hint="pair first, then connect")
    if connect:
        _connect(connect, server)
    elif pair:
        _pair(pair, server)
    else:
        _list(server, as_json=as_json)


def _list(server: str | None, *, as_json: bool) -> None:
    from fleet.transport.adbserver import AdbServer, check_state  # noqa: PLC0415

    where = AdbServer(server)
    rows: list[dict[str, object]] = []
    for phone in where.devices(Deadline(LOOK_SECONDS)):
        cure = ""
        try:
            check_state(phone, "")
        except FleetError as error:
            cure = error.hint
        shown = {"serial": phone.serial, "state": phone.state, "usb": phone.path}
        rows.append({**shown, "model": phone.model, "cure": cure})
    if as_json:
        output.emit_json({"server": str(where), "devices": rows})
        return
    if not rows:
        output.note(
            f"the adb server at {where} sees no phone; connect a phone by USB and enable USB "
            "debugging on it"
        )
        return
    columns = ("serial", "state", "usb", "model", "cure")
    output.table(
        f"adb at {where}", columns, [[str(row[c]) or "-" for c in columns] for row in rows]
    )
    output.note(
        "to use a phone, write in the inventory: transport: adb, serial: <serial, or usb:PATH, "
        "or HOST:PORT>"
    )


def _connect(target: str, server: str | None) -> None:
    from fleet.transport.adbserver import AdbServer  # noqa: PLC0415

    answer = AdbServer(server).dial(_target(target), Deadline(CONNECT_SECONDS))
    if not answer.startswith(("connected", "already connected")):
        raise UnreachableError(
            f"adb could not connect to the phone: {answer}",
            hint="adb tcpip 5555 (phone connected by USB), or pair first: "
            "fleet config phones --pair HOST:PORT",
        )
    output.note(answer)


def _pair(target: str, server: str | None) -> None:
    from fleet.transport.adbserver import AdbServer  # noqa: PLC0415

    where, there = AdbServer(server), _target(target)
    code = os.environ.get(CODE) or _asked()
    try:
        answer = where.pair(there, code, Deadline(PAIR_SECONDS))
    except UnreachableError as error:
        if "unknown host service" in error.message:
            raise UnreachableError(
                f"the adb server at {where} is too old for pairing",
                hint="install Android platform tools 30 or newer, then start the adb server again",
            ) from error
        raise
    if not answer.startswith("Successfully paired"):
        raise UnreachableError(
            f"adb could not pair with the phone: {answer}",
            hint="open `Pair device with pairing code` on the phone again, and use its new "
            "address and code",
        )
    output.note(answer)
    output.note(
        "next: fleet config phones --connect HOST:PORT (the address on the phone's `Wireless "
        "debugging` page)"
    )


def _asked() -> str:
    if not sys.stdin.isatty():
        raise InputError(
            "fleet cannot ask for the pairing code, because standard input is not a terminal",
            hint=f"set the environment variable {CODE} to the code that the phone shows",
        )
    return str(typer.prompt("pairing code", hide_input=True))


def _target(text: str) -> str:
    from fleet.transport.adbserver import is_target  # noqa: PLC0415

    if not is_target(text):
        raise InputError(
            f"'{text}' is not an address of the form HOST:PORT",
            hint="type the address as the phone shows it, for example 10.0.0.21:37123",
        )
    return text
