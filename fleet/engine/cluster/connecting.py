"""`dask://HOST:PORT` → an executor. Nothing of distributed is needed before that."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from fleet.engine.pool import Remote
from fleet.model.errors import InputError, UnreachableError
from fleet.model.extras import install_extra

if TYPE_CHECKING:
    from fleet.engine.cluster.executor import ClusterExecutor

CONNECT_SECONDS = 10.0
_ADDRESS = re.compile(r"dask(?P<tls>\+tls)?://(?P<where>[^/\s@]+:\d{1,5})/?")


def executor_for(text: str, *, limit: int | None = None) -> Remote:
    """The executor of `dask://HOST:PORT`, or `dask+tls://` with dask's own TLS settings.

    `limit`: boards at a time in all. Raises InputError for another form or a package that is
    not there, UnreachableError when no scheduler answers within CONNECT_SECONDS.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InputError(
            f"'{text}' is not the address of an executor", hint="write --executor dask://HOST:8786"
        )
    try:
        made: type[ClusterExecutor] = importlib.import_module(
            "fleet.engine.cluster.executor"
        ).ClusterExecutor
        distributed = importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        raise InputError(
            f"--executor needs the Python package {error.name}, which is not installed",
            hint=install_extra("dask"),
        ) from error
    where = f"{'tls' if match['tls'] else 'tcp'}://{match['where']}"
    try:
        client = distributed.Client(
            where, timeout=CONNECT_SECONDS, set_as_default=False, name="fleet"
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise UnreachableError(
            f"no dask scheduler answers at {match['where']} within {CONNECT_SECONDS:g} s",
            hint="start the scheduler on the machine of this address: dask scheduler --port "
            f"{match['where'].rpartition(':')[2]}",
        ) from error
    return made(client, limit=limit)
