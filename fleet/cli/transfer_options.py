"""Options of every command that sends bulk data."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.engine.transfer.context import CARRIERS, TransferOptions
from fleet.engine.transfer.limits import parse_rate

Carrier = Annotated[
    str, typer.Option(help=f"How to send bulk data over ssh: {', '.join(CARRIERS)}.")
]
Bandwidth = Annotated[
    str | None,
    typer.Option(help="Limit for all devices together: 50MB/s, 100Mbit/s.", metavar="RATE"),
]
PerHub = Annotated[
    int | None, typer.Option(min=1, help="Uploads at a time behind one hub (label `hub`, USB).")
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Send changed files whole instead of their differences.")
]
Compress = Annotated[str, typer.Option(help="auto (where it saves time), always or never.")]
Relay = Annotated[
    bool, typer.Option("--relay", help="Boards with one label `lan` serve each other large files.")
]


def options_of(
    carrier: str,
    bandwidth: str | None,
    per_hub: int | None,
    whole: bool,
    compress: str,
    relay: bool = False,
) -> TransferOptions:
    """The options as one. Raises InputError."""
    rate = parse_rate(bandwidth) if bandwidth else None
    return TransferOptions(carrier, rate, per_hub, whole, compress, relay)
