"""`fleet config`: the files that a person writes, before a device is asked."""

from __future__ import annotations

from fleet.cli.inventory import app, schema
from fleet.cli.lockfile import lock_file
from fleet.cli.runners import runners

__all__ = ["app"]

app.command("lock")(lock_file)
app.command("schema")(schema)
app.command("runners")(runners)
