"""`fleet profiles compare`: two groups of runs, or one as a matrix board by version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.model.errors import InputError
from fleet.model.metrics import LOSS, PRIMARY

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
    from fleet.cli import compared  # noqa: PLC0415 - numpy, for this command alone
    from fleet.profiles.compare.selecting import compare_groups  # noqa: PLC0415

    share = _share(margin)
    if a is None and not matrix:
        a, b = "prev", "last"
    if matrix:
        if a is None or b is not None or fail_if or strict or markdown or junit or vary:
            raise InputError(
                "--matrix shows one selection of results, and works only with --metric, "
                "--columns and --margin",
                hint="remove B and the other options: "
                f"fleet profiles compare --matrix --metric {PRIMARY.name} since:2026-11-01",
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
    found = compare_groups(sides, asked, metric or [], share, vary or [])
    judged = compared.judged(found, asked, strict=strict)
    compared.save(found, judged, markdown, junit)
    compared.show(found, judged, as_json=as_json)
    compared.end(found, judged, strict=strict)


def _share(text: str) -> float:
    """`1%` as 0.01."""
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = -1
    if not (text.endswith("%") and 0 <= found < 1):
        raise InputError(f"--margin {text} is not a percentage", hint="write it like --margin 1%")
    return found
