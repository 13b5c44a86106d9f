"""The connection to a cluster: an executor for `dask://HOST:PORT`.

The import raises InputError with the install command if dask.distributed is missing.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from fleet.model.errors import FleetError, InputError, UnreachableError
from fleet.model.extras import install_extra

try:
    import distributed
except ModuleNotFoundError as error:
    raise InputError(
        f"--executor needs the Python package {error.name}, which is not installed",
        hint=install_extra("dask"),
    ) from error

from fleet.engine.cluster import worker
from fleet.engine.cluster.fanout import FanOut
from fleet.engine.cluster.placement import Place, check_versions, place_of
from fleet.engine.cluster.remote_job import RemoteJob
from fleet.engine.cluster.wire import TOPIC
from fleet.engine.pool import DeviceResult, Remote, Value, Work
from fleet.model.events import Listener
from fleet.model.inventory import Host

# The concurrent.futures.Executor that uses the workers of a dask.distributed cluster.

CALL_SECONDS = 60.0  # a worker needs less for 4 MiB, unless its disk hangs


class ClusterExecutor(Remote):
    """An executor that works on boards with workers near them. `submit` accepts any module
    function.

    `limit` is the number of boards at a time, None for as many as the workers have threads. Close
    it with `shutdown`, or use it as a context manager; then the workers forget the work.
    """

    def __init__(self, client: distributed.Client, *, limit: int | None = None) -> None:
        self.client = client
        self.limit = limit
        self._jobs: dict[tuple[int, str], RemoteJob] = {}
        self._by_id: dict[str, RemoteJob] = {}
        self._lock = threading.Lock()
        self._plain = client.get_executor(pure=False, retries=0)
        client.subscribe_topic(TOPIC, self._receive)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        """Submit a function that workers can import to any worker."""
        future: Future[Any] = self._plain.submit(fn, *args, **kwargs)
        return future

    def everywhere(
        self,
        hosts: Sequence[Host],
        work: Work[Value],
        listener: Listener,
        *,
        admit: Callable[[Host], bool] | None = None,
        done: Callable[[DeviceResult[Value]], None] | None = None,
    ) -> list[DeviceResult[Value]]:
        """Run `work` for each host on the workers; the results are in the order of `hosts`.

        `work` is a method of Operation or a function of a module of fleet. Raises UnreachableError
        if the cluster has no worker, and InputError for a site without one.
        """
        job = self._job(work, hosts)
        job.listener = listener
        return FanOut(self, job, listener, admit, done).run(hosts)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Tell the workers to forget the work, and leave the cluster. `wait` is ignored."""
        with self._lock:
            jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            job.close()
            self.forget(sorted(job.flags))
        self._plain.shutdown(wait=not cancel_futures)
        self.client.close()

    def places(self) -> list[Place]:
        """Return the current workers."""
        info = self.client.scheduler_info(n_workers=-1)["workers"]
        return [place_of(address, known) for address, known in info.items()]

    def prepare(self, job: RemoteJob, places: Sequence[Place]) -> None:
        """Send the order of the job to the processes that do not have it yet.

        Raises InputError for another version of fleet, and the FleetError of a process that cannot
        carry out the order. A process that died is skipped.
        """
        new = [place.address for place in places if place.address not in job.prepared]
        if not new:
            return
        machines = check_versions(self.call(new, worker.who))
        answers = self.call(list(machines), worker.open_run, job.order)
        for address, problem in answers.items():
            if isinstance(problem, UnreachableError):
                continue  # it died meanwhile
            if isinstance(problem, FleetError):
                raise problem
            if isinstance(problem, Exception):
                raise FleetError(
                    f"the worker {address} failed: {type(problem).__name__}: {problem}",
                    hint="read what `dask worker` printed on the machine of this worker",
                )
            job.prepared[address] = machines[address]

    def call(
        self,
        addresses: list[str],
        function: Callable[..., Any],
        *args: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Run a function of `worker` on processes, in parallel with their tasks: address → result.

        An exception of the function takes the place of the result; it is UnreachableError for a
        process that is gone.
        """
        if not addresses:
            return {}

        async def run() -> dict[str, Any]:  # `Client.run` alone has no deadline
            answers: dict[str, Any] = await self.client.run(
                function, *args, workers=addresses, on_error="return"
            )
            return answers

        try:
            done = self.client.sync(run, callback_timeout=CALL_SECONDS)
        except (OSError, TimeoutError, RuntimeError, AssertionError) as error:
            done = dict.fromkeys(addresses, OSError(str(error)))
        return {address: _mapped(value) for address, value in done.items()}

    def forget(self, names: Sequence[str]) -> None:
        """Clear flags on the scheduler, which are useless once a result has arrived."""
        for name in names:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                distributed.Event(name, client=self.client).clear()

    def _alive(self) -> set[str]:
        try:
            return {place.address for place in self.places()}
        except (OSError, TimeoutError, RuntimeError):
            return set()

    def _receive(self, event: tuple[float, Any]) -> None:
        message = event[1]
        job = self._by_id.get(message.get("order", "")) if isinstance(message, dict) else None
        if job is not None:
            with contextlib.suppress(queue.Full):
                job.take(message)

    def _job(self, work: Work[Value], hosts: Sequence[Host]) -> RemoteJob:
        key = (id(getattr(work, "__self__", work)), getattr(work, "__name__", ""))
        with self._lock:
            if key not in self._jobs:
                job = RemoteJob(work, hosts, self.call, self._alive)
                self._jobs[key] = self._by_id[job.order.id] = job
            return self._jobs[key]


def _mapped(value: Any) -> Any:  # noqa: ANN401 - whatever the function gives
    """Map the error of a closed comm to UnreachableError, and return any other value unchanged.

    The error of a closed comm has no errno; an OSError of the function has one.
    """
    if isinstance(value, OSError) and value.errno is None:
        return UnreachableError(f"the connection to the dask worker broke: {value}")
    return value


CONNECT_SECONDS = 10.0
_ADDRESS = re.compile(r"dask(?P<tls>\+tls)?://(?P<where>[^/\s@]+:\d{1,5})/?")


def executor_for(text: str, *, limit: int | None = None) -> Remote:
    """Return the executor of `dask://HOST:PORT`, or of `dask+tls://` with dask's own TLS settings.

    `limit` is the number of boards at a time. Raises InputError for another form, and
    UnreachableError if no scheduler answers within CONNECT_SECONDS.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InputError(
            f"'{text}' is not the address of an executor", hint="write --executor dask://HOST:8786"
        )
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
    return ClusterExecutor(client, limit=limit)
