"""`fleet profiles`: the records of runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output, profiles_compare, profiles_report, profiles_store
from fleet.cli.measured import show_records
from fleet.cli.pictured import show_pictures
from fleet.cli.profiles_store import opened
from fleet.model.errors import InputError
from fleet.model.record import Record
from fleet.profiles.store import select
from fleet.profiles.store.rows import RunRow

SelectionArgument = Annotated[
    str,
    typer.Argument(
        help="`last`, a run id, or words joined with commas: host:NAME, tag:NAME, name:MODEL, "
        "runtime:2.51.0, chip:NAME, since:2026-11-01, baseline:NAME, reference:NAME, ..."
    ),
]
app = typer.Typer(no_args_is_help=True, help="Show, compare and export results of runs.")
MOST = 50
_RUNS = {key: key for key in ("run", "name", "devices", "records", "counted", "emulated")}
_RECORDS = {
    "run_id": "run",
    "host": "device",
    "name": "name",
    "repeat": "repeat",
    "counts": "counts",
    "ttft_ms": "TTFT ms",
    "decode_tps": "gen tok/s",
    "emulated": "emulated",
    "tags": "tags",
}


def list_runs(
    selection: SelectionArgument = "all",
    limit: Annotated[int, typer.Option(min=0, help="Most runs to show; 0: all.")] = MOST,
    single: Annotated[
        bool, typer.Option("--records", help="Show one row per measurement.")
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
            rows: list[dict[str, object]] = [
                row.as_dict() for row in found.find(query, limit or None)
            ]
            whole = found.count(query) if limit and len(rows) == limit else len(rows)
        else:
            most = limit + 1 if limit and as_json else None
            runs = found.list_runs(query, most)
            runs = runs if as_json else _folded(runs)
            rows, whole = [row.as_dict() for row in runs[: limit or None]], len(runs)
    if as_json:
        output.emit_json(rows)
        return
    if single:
        _table("records", _RECORDS, rows)
    else:
        _table("runs", _RUNS, rows)
    if not rows:
        output.note("no results yet; measure: fleet run PLAYBOOK; or: fleet profiles import FILE")
    if whole > len(rows):
        output.note(f"only the newest {len(rows)} runs are shown; for all of them: --limit 0")


def _folded(rows: list[RunRow]) -> list[RunRow]:
    """The many runs of one `fleet ab` as one row, which `profiles show` takes as it stands."""
    found: dict[str, RunRow] = {}
    for row in rows:
        pair = _PAIR.fullmatch(row.run)
        run = f"tag:ab-{pair[1]}" if pair else row.run
        first = found.get(run, replace(row, devices=0, records=0, counted=0))
        found[run] = replace(
            first, run=run, devices=max(first.devices, row.devices),
            records=first.records + row.records, counted=first.counted + row.counted,
        )  # fmt: skip
    return list(found.values())


_PAIR = re.compile(r"(.+)-(?:\d{3}\.\d+[ab]|warm)")  # as the journal of `fleet ab` names them
_DROPS = ("tags", "emulated", "repeat", "counts", "counted", "records", "name")


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
    runs = list(dict.fromkeys(record.run_id for record in records))
    title = f"run {runs[0]}" if len(runs) == 1 else f"{selection}: {len(runs)} runs"
    show_records(title, [record.as_dict() for record in records])
    show_pictures(records)
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
