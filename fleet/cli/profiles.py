"""`fleet profiles`: the records of runs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output, profiles_store
from fleet.cli.hints import completed
from fleet.cli.measured import show_records
from fleet.cli.options import App
from fleet.cli.profiles_store import opened
from fleet.model.errors import InputError, ProfileStoreError
from fleet.model.extras import install_extra
from fleet.model.files import written_whole
from fleet.model.metrics import HEADLINES, LATENCY, LOSS, METRICS, NETWORK, PRIMARY
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.model.text import harmless
from fleet.profiles.compare.groups import sides_of
from fleet.profiles.pictures import Bar, bars, known, sparkline
from fleet.profiles.store import select

if TYPE_CHECKING:
    from fleet.profiles.compare.groups import RecordGroup
    from fleet.profiles.report.summary import Report


# `fleet profiles report`: one HTML file to share.

GROUPS = 6
SelectionsArgument = Annotated[
    list[str], typer.Argument(help="Selections of runs (tag:NAME) or files; each is a group.")
]
OutputOption = Annotated[Path, typer.Option("--output", help="HTML file to write.")]
TitleOption = Annotated[
    str, typer.Option(help="Title of the report. Default: the names of the models and devices.")
]


def report(
    selections: SelectionsArgument,
    target: OutputOption = Path("report.html"),
    title: TitleOption = "",
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Write one HTML file that works offline: tables, distributions, heat and history of runs.

    Example: fleet profiles report tag:before tag:after --output report.html
    """
    # numpy and the drawing library, only for this command
    from fleet.cli.compared import group_of  # noqa: PLC0415
    from fleet.profiles.report import drawing  # noqa: PLC0415
    from fleet.profiles.report.page import page  # noqa: PLC0415
    from fleet.profiles.report.summary import gather, many  # noqa: PLC0415

    if len(selections) > GROUPS:
        raise InputError(
            f"a report can show at most {GROUPS} groups, but {len(selections)} were given",
            hint=f"give at most {GROUPS} selections, or make several reports",
        )
    groups = _apart([group_of(selection, store) for selection in selections])
    for group in groups:
        if not group.records and not any(each.suite and each.suite.nodes for each in group.suites):
            only = "answers, without times and nodes" if group.suites else "warm-up runs"
            raise InputError(
                f"'{group.label}' contains only {only}, which a report does not show",
                hint="choose other runs: fleet profiles list",
            )
    summary = gather(groups)
    if drawing.library() is None:
        cure = install_extra("report")
        output.note(
            f"the report lacks the charts of heat, operations and history; to add them: {cure}"
        )
    size = _write(target, page(summary, title))
    if as_json:
        output.emit_json(_plain(summary, target, size))
        return
    counted = sum(record.counts for record in summary.records)
    output.say(
        f"{target}: {size / 1000:,.0f} kB, {many(summary.boards, 'board')}, "
        f"{many(len(summary.records), 'run')}, {counted:,} count"
    )
    if len(selections) == 2 and len(groups) == 2:
        output.say(completed(f"next: fleet profiles compare {shlex.join(selections)}"))
    else:
        output.say(f"next: open {shlex.quote(str(target))} in a browser")


def _apart(groups: list[RecordGroup]) -> list[RecordGroup]:
    """Return the groups, with each side of `fleet ab` as a group; leave these out if they do not
    fit.

    Raises InputError if only sides of `fleet ab` were selected, and too many of them.
    """
    from fleet.profiles.compare.groups import apart, group, sides_of  # noqa: PLC0415 - numpy

    split = [side for whole in groups for side in apart(whole)]
    if len(split) <= GROUPS:
        return split
    rest = [group(part.label, sides_of(part.records).get("", [])) for part in groups]
    rest = [part for part in rest if part.records]
    if not rest:
        raise InputError(
            f"a report can show at most {GROUPS} groups, but the runs of `fleet ab` in "
            f"'{groups[0].label}' are {len(split)}: each side is a group",
            hint="fleet profiles list (shows the tag of each side), then select at most "
            f"{GROUPS} of them",
        )
    output.note(
        "the report leaves out the runs of `fleet ab`, whose sides are never pooled; select them "
        "by their tag (tag:ab-ID)"
    )
    return rest


def _write(target: Path, text: str) -> int:
    """Write the file atomically and return its size in bytes."""
    with written_whole(target, ProfileStoreError) as part:
        return part.write_bytes(text.encode())


def _plain(summary: Report, target: Path, size: int) -> dict[str, object]:
    return {
        "schema": 1,
        "file": target,
        "bytes": size,
        "boards": summary.boards,
        "emulated": summary.emulated,
        "groups": [
            {"selection": group.label, "runs": len(group.records), "counted": len(group.counted)}
            for group in summary.groups
        ],
        "metrics": [metric.name for metric in summary.metrics],
        "left_out": summary.left_out,
        "rows": len(summary.rows),
    }


# `fleet profiles compare`: two groups of runs, or one group as a matrix of boards and versions.

Words = list[str] | None
Before = Annotated[
    str | None, typer.Argument(help="Runs before the change: tag:NAME, a run id, or a file.")
]
After = Annotated[str | None, typer.Argument(help="Runs after the change; not with --matrix.")]
MetricOption = Annotated[
    Words, typer.Option(help=f"Compare only this metric, such as {PRIMARY.name}. Repeatable.")
]
MatrixOption = Annotated[
    bool,
    typer.Option(
        "--matrix",
        help="Show a table of one --metric, with one row per device and one column per version.",
    ),
]
ColumnsOption = Annotated[
    str, typer.Option(help="With --matrix: make one column per runtime or per release.")
]
VaryOption = Annotated[
    Words,
    typer.Option(
        help="Condition that you changed between A and B on purpose, such as runtime. Repeatable."
    ),
]
MarginOption = Annotated[
    str, typer.Option(help="Treat changes up to this size as no change, such as 1%.")
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Fail if A and B ran under different or unknown conditions (versions, power, heat).",
    ),
]
FailOption = Annotated[
    Words,
    typer.Option(help=f"Exit with 1 if B is worse by this much: '{LOSS}', slower. Repeatable."),
]
MarkdownOption = Annotated[
    Path | None, typer.Option(help="Also write a Markdown file, for a pull request.")
]
JunitOption = Annotated[Path | None, typer.Option(help="Also write a JUnit XML file, for CI.")]


def compare(
    a: Before = None,
    b: After = None,
    metric: MetricOption = None,
    matrix: MatrixOption = False,
    columns: ColumnsOption = "runtime",
    vary: VaryOption = None,
    margin: MarginOption = "1%",
    strict: StrictOption = False,
    fail_if: FailOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Compare runs B with runs A: conditions, changes with intervals, verdicts, operations.

    Without A and B: the last run is compared with the one before it of the same name.

    Example: fleet profiles compare tag:before tag:after --fail-if slower
    """
    from fleet.cli import compared  # noqa: PLC0415 - numpy, only for this command
    from fleet.profiles.compare.outcome import judged_gates, require  # noqa: PLC0415
    from fleet.profiles.compare.selecting import compare_groups  # noqa: PLC0415

    share = _share(margin)
    if a is None and not matrix:
        a, b = "prev", "last"
    if matrix:
        if a is None or b is not None or fail_if or strict or markdown or junit or vary:
            raise InputError(
                "--matrix needs one selection of results, and works only with --metric, "
                "--columns and --margin",
                hint=f"fleet profiles compare --matrix --metric {PRIMARY.name} since:2026-11-01",
            )
        compared.show_matrix(a, store, metric or [], columns, share, as_json=as_json)
        return
    if a is None or b is None:
        raise InputError(
            "`fleet profiles compare` needs two selections of runs (A and B), or one with --matrix",
            hint="fleet profiles compare tag:before last",
        )
    asked = compared.gates_of(fail_if or [])
    sides = compared.group_of(a, store), compared.group_of(b, store)
    comparison = compare_groups(sides, asked, metric or [], share, vary or [])
    judged = judged_gates(comparison, asked, strict=strict)
    compared.save(comparison, judged, markdown, junit)
    compared.show(comparison, judged, as_json=as_json)
    require(comparison, judged, strict=strict, again=compared.command(comparison))


def _share(text: str) -> float:
    """Return the share in a text: 0.01 for `1%`."""
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1
    if not (text.endswith("%") and 0 <= share < 1):
        raise InputError(f"--margin {text} is not a percentage", hint="write it like --margin 1%")
    return share


# Text charts of records, under their table.

WIDTH = 80  # without a terminal
DEVICES = 20


def show_pictures(records: Sequence[Record]) -> None:
    """Print the repeats of each device as a sparkline, and several devices as bars with intervals.

    The charts show the counting runs in one metric: the first available of tok/s, the latency of a
    network, TTFT, and others.
    """
    # numpy, needed only here
    from fleet.profiles.compare.groups import by_run  # noqa: PLC0415
    from fleet.profiles.compare.metrics import metric, present, value  # noqa: PLC0415
    from fleet.profiles.stats.difference import difference  # noqa: PLC0415

    whole = [record for record in records if not record.warmup]
    names = present([record for record in whole if record.counts])
    wanted = [key for key in HEADLINES if key in names] + names
    name = next(iter(wanted), None)
    if name is None:
        return
    plain = not known(output.console.encoding)
    width = output.console.width if output.console.is_terminal else WIDTH
    boards: dict[str, list[Record]] = {}
    for record in whole:
        boards.setdefault(harmless(record.host) or "unknown device", []).append(record)
    shown, drawn = metric(name, whole).shown, list[Bar]()
    for host, mine in list(boards.items())[:DEVICES]:
        ordered = sorted(mine, key=lambda record: (record.started, record.run_id, record.repeat))
        values = [value(record, name) if record.counts else None for record in ordered]
        good = sorted(number for number in values if number is not None and math.isfinite(number))
        if not good:
            continue
        room = max(width - len(host) - len(shown) - 30, 8)
        if len(good) > 1:
            line = sparkline(values, room, plain=plain)
            output.say(f"  {host} {shown} {line} {good[0]:.4g} to {good[-1]:.4g}")
        alone = difference(by_run(ordered, name), [])
        ends = (alone.a.low, alone.a.high) if alone.a else (None, None)
        drawn.append(Bar(host, good[0] if alone.mid_a is None else alone.mid_a, *ends))
    if len(drawn) > 1:
        output.say(f"  {shown}, with 95 % intervals for five or more runs")
        for line in bars(drawn, width - 2, plain=plain):
            output.say(f"  {line}")
    if len(boards) > DEVICES:
        output.note(f"only {DEVICES} of {len(boards)} devices are drawn")


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
    with opened(store) as profiles:
        if single:
            rows: list[dict[str, Any]] = [
                to_plain(row) for row in profiles.find(query, newest or None)
            ]
            whole = profiles.count(query) if newest and len(rows) == newest else len(rows)
        else:
            more = [
                to_plain(row)
                for row in profiles.list_runs(
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
    """Return the median with its unit, and the values as a sparkline."""
    plain = not known(output.console.encoding)
    several = len(row["values"]) > 1
    return {
        "median": f"{row['median']:.4g} {_UNITS[row['metric']]}" if row["metric"] else "-",
        "values": sparkline(row["values"], PICTURE, plain=plain) if several else "-",
    }


_DROPS = ("tags", "emulated", "repeat", "counts", "records", "counted", "values", "devices", "name")


def _table(title: str, columns: dict[str, str], rows: list[dict[str, object]]) -> None:
    """Print rows as a table. `columns` maps keys to heads."""
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
    with opened(store) as profiles:
        plain = sorted(profiles.plain(query), key=lambda data: str(data["host"]))
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
        show_records(title, [to_plain(record) for record in mine])
        show_pictures(mine)
    _show_around(records)


def _show_around(records: list[Record]) -> None:
    """Print the context of the numbers: source, notes, tags and the generated text."""
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
    "compare": compare,
    "report": report,
}
for _name, _function in _COMMANDS.items():
    app.command(_name)(_function)
app.add_typer(profiles_store.baseline, name="baseline")
