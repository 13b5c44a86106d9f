"""Options of every command that sends bulk data."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.engine.transfer.depot import CARRIERS, Pace
from fleet.engine.transfer.limits import parse_rate

CarrierOption = Annotated[
    str,
    typer.Option("--carrier", help=f"Way of bulk data over ssh: {', '.join(CARRIERS)}."),
]
BandwidthOption = Annotated[
    str | None,
    typer.Option(
        "--bandwidth", help="At most, for all devices together: 50MB/s, 100Mbit/s.", metavar="RATE"
    ),
]
PerHubOption = Annotated[
    int | None,
    typer.Option("--per-hub", min=1, help="Uploads at a time behind one hub (label `hub`, USB)."),
]
WholeOption = Annotated[
    bool, typer.Option("--whole", help="Send changed files whole, not what differs.")
]
CompressOption = Annotated[
    str, typer.Option("--compress", help="auto (where it saves time), always or never.")
]
RelayOption = Annotated[
    bool,
    typer.Option("--relay", help="Boards with one label `lan` serve each other large files."),
]


def pace_of(
    carrier: str,
    bandwidth: str | None,
    per_hub: int | None,
    whole: bool,
    compress: str,
    relay: bool = False,
) -> Pace:
    """The options as one. Raises InputError."""
    rate = parse_rate(bandwidth) if bandwidth else None
    return Pace(carrier, rate, per_hub, whole, compress, relay)
