"""`fleet facts`: what a device is, from one round trip."""

from __future__ import annotations

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of, working_on
from fleet.cli.results import emit, show_errors
from fleet.engine.facts import gather_facts
from fleet.engine.pool import on_every_device
from fleet.facts.view import summary
from fleet.model.facts import Facts


def facts(
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    executor: opt.Executor = None,
    as_json: opt.Json = False,
) -> None:
    """Show OS, SoC, FastRPC, disk and tools of devices. Reads only, one round trip each.

    Example: fleet facts -i inventories/lab.yaml --limit lab001 --json
    """
    hosts = hosts_of(inventory, limit)
    with working_on(executor, parallel) as remote:
        results = on_every_device(
            hosts,
            gather_facts,
            lambda _: None,
            parallel=parallel or DEFAULT_PARALLEL,
            accept_new=accept_new,
            executor=remote,
        )
    for result in results:
        seen = result.details.get("facts")
        known = seen if isinstance(seen, Facts) else None
        result.details = {"facts": known and known.as_dict()}
        if known and not as_json:
            output.table(result.host.name, ("fact", "value"), summary(known))
    if as_json:
        emit(results, "round_trips", "error")
    else:
        show_errors(results)
    end_devices(results)
