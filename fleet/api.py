"""The Python API: what the command line uses. docs/api.md has the examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.cli.project import needed
from fleet.config.inventory import load_inventory
from fleet.config.inventory import select as select_hosts
from fleet.config.playbook import load_playbook
from fleet.doctor.examine import Round, examine
from fleet.engine.deploy.operation import Operation
from fleet.engine.deploy.push import Push, PushOptions
from fleet.engine.deploy.releases import rollback as switch_back
from fleet.engine.everyday.execute import Executed, Executing, execute_everywhere
from fleet.engine.everyday.get import Fetched, Fetching, fetch_everywhere
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.rollout.inputs import inputs_of
from fleet.engine.status import DeviceStatus
from fleet.engine.status import status as device_status
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import FleetError, InputError
from fleet.model.events import CallerListener, Event, Listener
from fleet.model.inventory import Host
from fleet.profiles.exports import full_rows
from fleet.profiles.store import ProfileStore, select
from fleet.triage.triage import triage

if TYPE_CHECKING:
    from adbutils import AdbDevice
    from fabric import Connection, Group

    from fleet.profiles.compare.comparing import Comparison

__all__ = [
    "DeployOptions", "DeviceResult", "FleetError", "PushOptions", "adb_device", "compare",
    "connection", "deploy", "diagnose", "diagnose_log", "exec", "get", "group", "load", "plan",
    "push", "records", "rollback", "run", "status",
]  # fmt: skip
PARALLEL = 16
Cell = str | int | float | bool | None


def _silent(_: Event) -> None:
    return None


def load(
    inventory: str | Path,
    playbook: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    options: DeployOptions | None = None,
) -> Operation:
    """Return a playbook on the hosts of an inventory:

    `.plan()`, `.provision()`, `.deploy()`, `.run()`.

    `limit` are patterns as for `--limit`. `listener` gets every event, from several threads. Its
    first error is logged (logger `fleet`); no device fails because of it. Raises InputError for an
    invalid file; errors of devices are in their results.
    """
    listener = CallerListener(listener)
    hosts = _hosts(limit, inventory)
    # the file of this lock is not known here
    lock = options is not None and options.lock is not None
    inputs = None if lock else inputs_of(Path(playbook), Path(inventory), list(limit))
    return Operation(load_playbook(Path(playbook)), hosts, listener, options=options, inputs=inputs)


def plan(
    inventory: str | Path,
    playbook: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    options: DeployOptions | None = None,
) -> list[DeviceResult[None]]:
    """Return what `deploy` would do on each device: `result.plan`. Nothing is changed.

    Raises InputError as `load` does.
    """
    return load(inventory, playbook, limit=limit, listener=listener, options=options).plan()


def deploy(
    inventory: str | Path,
    playbook: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    options: DeployOptions | None = None,
) -> list[DeviceResult[None]]:
    """Bring the devices to the state of the playbook, and run the model as `options.run` says.

    The records of the runs are in `result.records`. Raises InputError as `load` does.
    """
    return load(inventory, playbook, limit=limit, listener=listener, options=options).deploy()


def run(
    inventory: str | Path,
    playbook: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    options: DeployOptions | None = None,
) -> list[DeviceResult[None]]:
    """Run the deployed release of the playbook; the records are in `result.records`.

    Raises InputError as `load` does.
    """
    return load(inventory, playbook, limit=limit, listener=listener, options=options).run()


def status(
    inventory: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    parallel: int = PARALLEL,
    accept_new: bool = False,
) -> list[DeviceResult[DeviceStatus]]:
    """Return the deployed release of each device, its deployer and its speed: `result.value`."""
    hosts = _hosts(limit, inventory)
    listener = CallerListener(listener)
    return device_status(hosts, listener, parallel=parallel, accept_new=accept_new)


def push(
    inventory: str | Path,
    *sources: str | Path,
    name: str = "",
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    options: PushOptions | None = None,
) -> list[DeviceResult[None]]:
    """Send files and folders, which become `current/NAME/` in the base folder of each device.

    `name` defaults to that of the first source. Raises InputError for a file that cannot be sent.
    """
    paths = [Path(source) for source in sources]
    name = name or (paths[0].resolve().stem if paths else "")
    hosts = _hosts(limit, inventory)
    return Push(name, paths, hosts, CallerListener(listener), options).push()


def get(
    inventory: str | Path,
    remote: str,
    local: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    lease: bool = False,
    parallel: int = PARALLEL,
    accept_new: bool = False,
) -> list[DeviceResult[Fetched]]:
    """Copy a file or folder of the devices into `local`; `result.value` names the files.

    The files of several devices go to `local`/DEVICE/. If a file of a device did not arrive, its
    error is a TransferError.
    """
    hosts = _hosts(limit, inventory)
    job = Fetching(remote, Path(local), apart=len(hosts) > 1, lease=lease)
    listener = CallerListener(listener)
    return fetch_everywhere(job, hosts, listener, parallel=parallel, accept_new=accept_new)


def exec(  # noqa: A001 - the word of the command line
    inventory: str | Path,
    *command: str,
    limit: Sequence[str],
    listener: Listener = _silent,
    timeout: float = 60.0,
    sudo: bool = False,
    lease: bool = False,
    parallel: int = PARALLEL,
    accept_new: bool = False,
) -> list[DeviceResult[Executed]]:
    """Run a command on the devices; status and output are in `result.value`.

    A single word is a line for the device's shell; several words are a program with its arguments.
    A status other than 0 is a DeviceError in the result. `limit` has no default: a command for all
    devices needs `limit=["all"]`.
    """
    hosts = _hosts(limit, inventory)
    job = Executing(command, timeout, lease, sudo)
    listener = CallerListener(listener)
    return execute_everywhere(job, hosts, listener, parallel=parallel, accept_new=accept_new)


def rollback(
    inventory: str | Path,
    name: str,
    *,
    to: str | None = None,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    parallel: int = PARALLEL,
) -> list[DeviceResult[None]]:
    """Switch `name` back to its previous release, or to the release `to`. No files are sent.

    A device without that release, or whose old release opens no NPU session, fails and is not
    changed.
    """
    hosts = _hosts(limit, inventory)
    return switch_back(hosts, name, CallerListener(listener), to=to, parallel=parallel)


def diagnose(
    inventory: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    how: Round | None = None,
) -> list[Diagnosis]:
    """Return a diagnosis for each device of an inventory. It only reads.

    Raises InputError for an invalid file. A device that cannot be reached has a diagnosis too.
    """
    hosts = _hosts(limit, inventory)
    return examine(hosts, CallerListener(listener), how or Round())


def diagnose_log(text: str, *, platform: str = "") -> Diagnosis:
    """Return the causes in a log; `platform` is linux, android or windows if it is known."""
    return triage(text, platform=platform)


def records(selection: str = "last", *, store: str | Path | None = None) -> list[dict[str, Cell]]:
    """Return a row for each record of a selection, for `pandas.DataFrame` or `polars.DataFrame`.

    Every row has every column of `fleet profiles export -o csv`, None for unknown values. `store`
    is as for `--store`. Raises InputError for an invalid selection.
    """
    query = select.parse(selection)
    with _store(store) as opened:
        return list(full_rows(opened, query))


def compare(
    a: str = "prev",
    b: str = "last",
    *,
    metrics: Sequence[str] = (),
    margin: float = 0.01,
    vary: Sequence[str] = (),
    store: str | Path | None = None,
    fail_if: Sequence[str] = (),
    strict: bool = False,
) -> Comparison:
    """Compare the runs B with the runs A: conditions, changes with intervals, verdicts.

    `a` and `b` are selections or files; `vary` names conditions that were changed on purpose. With
    `fail_if` (gates such as `decode_tps<-5%`) or `strict`, raises GateError if B is worse, and
    NotComparableError if fleet cannot decide. Raises InputError if A or B has no runs.
    """
    from fleet.profiles.compare.gates import parse  # noqa: PLC0415 - numpy, as the next two
    from fleet.profiles.compare.outcome import judged_gates, require  # noqa: PLC0415
    from fleet.profiles.compare.selecting import compare_groups, group_of  # noqa: PLC0415

    with _store(store) as opened:
        sides = group_of(a, opened), group_of(b, opened)
    gates = [parse(text) for text in fail_if]
    comparison = compare_groups(sides, gates, metrics, margin, vary)
    if gates or strict:
        require(comparison, judged_gates(comparison, gates, strict=strict), strict=strict)
    return comparison


@contextmanager
def _store(path: str | Path | None) -> Iterator[ProfileStore]:
    """Open the store of records, updated with the latest runs."""
    with ProfileStore(None if path is None else Path(path)) as opened:
        opened.look()
        yield opened


def _hosts(patterns: Sequence[str], inventory: str | Path | None) -> list[Host]:
    path = needed("inventory") if inventory is None else Path(inventory)
    return list(select_hosts(load_inventory(path), list(patterns)))


def _host(name: str, inventory: str | Path | None) -> Host:
    hosts = _hosts([name], inventory)
    if len(hosts) != 1:
        raise InputError(
            f"'{name}' names {len(hosts)} devices, and one is needed",
            hint=f"one of: {', '.join(host.name for host in hosts)}",
        )
    return hosts[0]


def connection(name: str, *, inventory: str | Path | None = None) -> Connection:
    """Return a `fabric.Connection` to a host of the inventory, not yet open.

    fleet opens it: host keys, jump hosts, keys and passwords are those of the inventory.
    `inventory` defaults to that of FLEET_INVENTORY, then of the project (fleet.yaml).
    Raises InputError for an unknown name and for a device that is not reached over ssh.
    """
    from fleet.transport.scripting import fabric_connection  # noqa: PLC0415 - fabric takes 0.1 s

    return fabric_connection(_host(name, inventory))


def group(*patterns: str, inventory: str | Path | None = None) -> Group:
    """Return a `fabric.Group` of the hosts that the patterns of `--limit` select.

    Each call on the group runs on all hosts at once. Raises InputError as `connection` does.
    """
    from fleet.transport.scripting import fabric_group  # noqa: PLC0415 - fabric takes 0.1 s

    return fabric_group(_hosts(patterns, inventory))


def adb_device(name: str, *, inventory: str | Path | None = None) -> AdbDevice:
    """Return an `adbutils.AdbDevice` for a phone of the inventory, after it has answered.

    Raises InputError for an unknown name and for a device that is not reached over adb, and a
    FleetError if the phone does not answer.
    """
    from fleet.transport.scripting import adbutils_device  # noqa: PLC0415 - adbutils takes 0.15 s

    return adbutils_device(_host(name, inventory))
