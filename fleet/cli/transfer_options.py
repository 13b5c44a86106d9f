"""Options of every command that sends bulk data."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.engine.transfer.context import CARRIERS, TransferOptions
from fleet.engine.transfer.limits import parse_rate

Carrier = Annotated[str, typer.Option(help=f"How to send data over ssh: {', '.join(CARRIERS)}.")]
Bandwidth = Annotated[
    str | None, typer.Option(help="Bandwidth of all devices together: 50MB/s.", metavar="RATE")
]
PerHub = Annotated[
    int | None, typer.Option(min=1, help="Simultaneous uploads behind one USB hub (label `hub`).")
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Send changed files whole, not only differences.")
]
Compress = Annotated[str, typer.Option(help="auto (where it saves time), always or never.")]
Relay = Annotated[
    bool,
    typer.Option("--relay", help="Devices with one label `lan` copy large files from each other."),
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
