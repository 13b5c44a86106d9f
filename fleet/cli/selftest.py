"""`fleet selftest`: a test of fleet's assumptions on a board."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.archives import send_out
from fleet.cli.common import end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import show_errors
from fleet.doctor.bundle import contents
from fleet.runtimes.store import RuntimeStore
from fleet.selftest.archive import board_line, counted, selftest_members
from fleet.selftest.climb import Selftest, SelftestOptions
from fleet.selftest.ladder import FELL, HOLDS, UNDECIDED, Climbed

_MARKS = {HOLDS: "holds", FELL: "FELL", UNDECIDED: "-"}
_LINE = 80
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        help="QAIRT runtime to test with, from the runtime store: id, build id or version."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", help="Archive to write; default: selftest-CHIP-DAY.tar.gz."),
]

YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before the archive is written.")
]
_HINT = "name another file: --output FILE"


def selftest(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    runtime: RuntimeOption = None,
    archive: OutputOption = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    yes: YesOption = False,
    as_json: opt.Json = False,
) -> None:
    """Test whether a device behaves as fleet assumes. Needs no model, no root, three minutes.

    Example: fleet selftest -i evks.yaml -l evk-07 --runtime 2.51.0
    """
    store = RuntimeStore()
    chosen = store.get(runtime) if runtime else None
    how = SelftestOptions(
        chosen, parallel=parallel or SelftestOptions.parallel, accept_new=accept_new
    )
    hosts = hosts_of(inventory, limit, host)
    with listening(as_json=False) as listener:
        test = Selftest(hosts, (lambda _: None) if as_json else listener, store, how)
        results = test.run()
    devices = [test.climbed[host.name] for host in hosts if host.name in test.climbed]
    path = archive or _default(devices)
    members = selftest_members(devices)
    if as_json:
        if devices:
            send_out(path, members, hint=_HINT, yes=yes, as_json=True)
        output.emit_json(
            {
                "schema": 1,
                "devices": devices,
                "errors": [result.error for result in results if result.error is not None],
                "archive": path if devices else None,
                "contents": _listed(members),
            }
        )
    else:
        for climbed in devices:
            _show(climbed)
        if devices and send_out(path, members, hint=_HINT, yes=yes, as_json=False):
            output.note("docs/selftest.md says where to send it")
        show_errors(results)
    end_devices(results)


def _listed(members: dict[str, str]) -> list[dict[str, object]]:
    return [
        {"file": name, "bytes": int(size), "about": about}
        for name, size, about in contents(members)
    ]


def _default(devices: list[Climbed]) -> Path:
    chips = {climbed.facts.soc.chip or "unknown" for climbed in devices}
    return Path(f"selftest-{'-'.join(sorted(chips)).lower()}-{time.strftime('%Y-%m-%d')}.tar.gz")


def _show(climbed: Climbed) -> None:
    emulated = "  emulated: true" if climbed.facts.emulated else ""
    output.say(f"{climbed.host}{emulated}")
    _say(board_line(climbed))
    for step in climbed.steps:
        text = step.observed if step.status != UNDECIDED else f"not decided: {step.reason}"
        mark = _MARKS[step.status]
        line = f"  {mark:6}{step.rung.id:13}{step.seconds:5.1f} s  {' '.join(text.split())}"
        output.say(line if len(line) <= _LINE else line[: _LINE - 3] + "...")
    output.say(f"  {counted(climbed)}")
    for step in climbed.steps:
        if step.cure:
            _say(f"test {step.rung.id}: not decided: {step.reason}")
            output.advise(f"next: {step.cure}")
    if climbed.first is not None:
        step, row = climbed.first
        _say(f"first assumption that does not hold: {row.id} {row.statement}")
        _say(f"test {step.rung.id}: expected: {step.expected}; found: {step.observed}")
        _say(f"fleet relies on it in: {row.symbol}")
        output.advise(f"next: fleet doctor --limit {climbed.host}")


def _say(text: str) -> None:
    output.say(textwrap.fill(text, _LINE, initial_indent="  ", subsequent_indent="    "))
