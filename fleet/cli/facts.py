"""`fleet facts`: the properties of devices, from one round trip each."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of, working_on
from fleet.cli.results import emit, show_errors
from fleet.engine.pool import PoolOptions, on_every_device
from fleet.engine.states import gather_facts
from fleet.facts.view import DIFFERS, overview, summary
from fleet.model.facts import Facts


def facts(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    executor: opt.Executor = None,
    verbose: opt.Verbose = False,
    as_json: opt.Json = False,
) -> None:
    """Show OS, SoC, FastRPC, disk and tools of devices. Reads only, one round trip each.

    One row per device; all facts of one device, or with -v.

    Example: fleet facts -i inventories/lab.yaml --limit lab001 --json
    """
    hosts = hosts_of(inventory, limit, host)
    with working_on(executor, parallel) as remote:
        options = PoolOptions[Facts](
            parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new, executor=remote
        )
        results = on_every_device(hosts, gather_facts, lambda _: None, options)
    facts_of_hosts = {
        result.host.name: result.value for result in results if result.value is not None
    }
    if as_json:
        emit(results, "round_trips", "error", plain=lambda f: {"facts": f})
    else:
        _show(facts_of_hosts, whole=verbose or len(hosts) == 1)
        show_errors(results)
    end_devices(results)


_DROPS = ("board", "libc", "kernel", "python3", "os", "emulated", "Hexagon", "°C", "disk", "chip")


def _show(devices: Mapping[str, Facts], *, whole: bool) -> None:
    if whole and output.shape != "name":
        for name, facts in devices.items():
            output.table(name, ("fact", "value"), summary(facts))
        return
    heads, rows = overview(devices)
    output.table("facts", heads, rows, _DROPS)
    if any(cell and cell.endswith(DIFFERS) for row in rows for cell in row):
        output.advise(f"{DIFFERS} differs from most devices; for all facts: fleet facts -v")
