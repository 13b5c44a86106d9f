"""`fleet profiles`: the records of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output, profiles_compare, profiles_report, profiles_store
from fleet.cli.measured import show_records
from fleet.cli.options import App
from fleet.cli.pictured import show_pictures
from fleet.cli.profiles_store import opened
from fleet.model.errors import InputError
from fleet.model.metrics import LATENCY, METRICS, NETWORK, PRIMARY
from fleet.model.record import Record
from fleet.profiles.compare.groups import sides_of
from fleet.profiles.pictures.lines import known, sparkline
from fleet.profiles.store import select

SelectionArgument = Annotated[
    str,
    typer.Argument(
        help="`last`, a run id, or words joined with commas: host:NAME, tag:NAME, name:MODEL, "
        "runtime:2.51.0, chip:NAME, since:2026-11-01, baseline:NAME, reference:NAME, ..."
    ),
]
app = App(no_args_is_help=True, help="Show, compare and export results of runs.")
MOST = 50
_RUNS = {"run": "run", "name": "name", "devices": "devices", "records": "records"}
_RUNS |= {"counted": "counted", "median": "median", "values": "values", "emulated": "emulated"}
_UNITS = {metric.name: metric.unit for metric in (PRIMARY, NETWORK[LATENCY])}
PICTURE = 12  # columns
_RECORDS = {
    "run_id": "run",
    "host": "device",
    "name": "name",
    "repeat": "repeat",
    "counts": "counts",
    **{metric.name: metric.shown for metric in METRICS if metric.listed},
    "emulated": "emulated",
    "tags": "tags",
}


def list_runs(
    selection: SelectionArgument = "all",
    newest: Annotated[
        int, typer.Option(min=0, help="Show at most this many runs, the newest; 0: all.")
    ] = MOST,
    single: Annotated[
        bool,
        typer.Option(
            "--records", help="Show one row per run instead of one row per series of runs."
        ),
    ] = False,
    whole_ab: Annotated[
        bool, typer.Option("--all", help="Show each run of `fleet ab` in a row of its own.")
    ] = False,
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """List runs, newest first.

    Example: fleet profiles list host:evk-07,since:2026-11-01
    """
    query = select.parse(selection)
    with opened(store) as found:
        if single:
            rows: list[dict[str, Any]] = [
                row.as_dict() for row in found.find(query, newest or None)
            ]
            whole = found.count(query) if newest and len(rows) == newest else len(rows)
        else:
            more = [
                row.as_dict()
                for row in found.list_runs(
                    query, newest + 1 if newest else None, folded=not whole_ab
                )
            ]
            rows, whole = more[: newest or None], len(more)
    if as_json:
        output.emit_json(rows)
        return
    if single:
        _table("records", _RECORDS, rows)
    else:
        _table("runs", _RUNS, [row | _drawn(row) for row in rows])
    if not rows:
        output.note("no results yet; measure: fleet run PLAYBOOK; or: fleet profiles import FILE")
    if whole > len(rows):
        output.note(f"only the newest {len(rows)} runs are shown; for all of them: --newest 0")


def _drawn(row: dict[str, Any]) -> dict[str, object]:
    """The median with its unit, and the values as a picture of letters."""
    plain = not known(output.console.encoding)
    several = len(row["values"]) > 1
    return {
        "median": f"{row['median']:.4g} {_UNITS[row['metric']]}" if row["metric"] else "-",
        "values": sparkline(row["values"], PICTURE, plain=plain) if several else "-",
    }


_DROPS = ("tags", "emulated", "repeat", "counts", "records", "counted", "values", "devices", "name")


def _table(title: str, columns: dict[str, str], rows: list[dict[str, object]]) -> None:
    """Columns: key → head."""
    cells = [[_cell(row[key]) for key in columns] for row in rows]
    output.table(title, tuple(columns.values()), cells, _DROPS)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, tuple):
        return " ".join(value)
    return None if value == "" else value


def show(
    selection: SelectionArgument = "last", store: opt.Store = None, as_json: opt.Json = False
) -> None:
    """Show runs: medians per device, runs that do not count, and the generated text.

    Example: fleet profiles show last
    """
    query = select.parse(selection)
    with opened(store) as found:
        plain = sorted(found.plain(query), key=lambda data: str(data["host"]))
    if not plain:
        raise InputError(f"no stored run matches '{selection}'", hint="fleet profiles list")
    records = [Record.from_dict(data) for data in plain]
    if as_json:
        pairs = zip(plain, records, strict=True)
        output.emit_json([{**data, "counts": record.counts} for data, record in pairs])
        return
    for side, mine in sides_of(records).items():
        counted = [record for record in mine if not record.warmup] or mine
        runs = list(dict.fromkeys(record.run_id for record in counted))
        of = f"tag:{side}" if side else selection
        title = f"run {runs[0]}" if len(runs) == 1 else f"{of}: {len(runs)} runs"
        show_records(title, [record.as_dict() for record in mine])
        show_pictures(mine)
    _show_around(records)


def _show_around(records: list[Record]) -> None:
    """What stands beside the numbers: source, operations, tags, what was said."""
    for key in ("source", "note"):
        for text in sorted({str(r.origin[key]) for r in records if key in r.origin}):
            output.say(f"  {key}: {text}")
    tags = sorted({tag for record in records for tag in record.tags})
    if tags:
        output.say(f"  tags: {' '.join(tags)}")
    for text in sorted({record.text.strip() for record in records if record.text.strip()}):
        output.say(f"  said: {text}")


_COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_runs,
    "show": show,
    "import": profiles_store.import_files,
    "export": profiles_store.export_records,
    "tag": profiles_store.tag,
    "compare": profiles_compare.compare,
    "report": profiles_report.report,
}
for _name, _function in _COMMANDS.items():
    app.command(_name)(_function)
app.add_typer(profiles_store.baseline, name="baseline")
