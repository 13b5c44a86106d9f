"""An executor for `dask://HOST:PORT`, and the distribution of boards to its workers.

The import raises InputError with the install command if dask.distributed is missing.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fleet.engine.cluster import worker
from fleet.engine.cluster.remote_job import PIECE_BYTES, Call, RemoteJob
from fleet.engine.cluster.wire import (
    TOPIC,
    Carried,
    Place,
    Reply,
    brought_home,
    check_versions,
    may_travel,
    place_of,
    serving,
    site_of,
)
from fleet.engine.pool import DeviceResult, PoolOptions, Remote, Value, Work, done_event, note
from fleet.engine.system.undo import undo_root
from fleet.model.errors import (
    CancelledError,
    FleetError,
    InputError,
    TransferError,
    UnreachableError,
    unforeseen,
)
from fleet.model.events import Listener, RunDone, Warned
from fleet.model.extras import install_extra
from fleet.model.files import check_name
from fleet.model.home import disk_full, kept, open_private, private_folder
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.profiles.runs import RunStore

try:
    import distributed
except ModuleNotFoundError as error:
    raise InputError(
        f"--executor needs the Python package {error.name}, which is not installed",
        hint=install_extra("dask"),
    ) from error

CALL_SECONDS = 60.0  # a worker needs less for 4 MiB, unless its disk hangs


class ClusterExecutor(Remote):
    """A concurrent.futures.Executor whose workers, those of a dask cluster, are near the boards.

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
        options: PoolOptions[Value],
    ) -> list[DeviceResult[Value]]:
        """Run `work` for each host on the workers; the results are in the order of `hosts`.

        `work` is a method of Operation or a function of a module of fleet. Raises UnreachableError
        if the cluster has no worker, and InputError for a site without one.
        """
        job = self._job(work, hosts)
        job.listener = listener
        return FanOut(self, job, listener, options).run(hosts)

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


class ResultCollection:
    """A writer of records and undo logs of workers below `runs`, with one piece in memory."""

    def __init__(self, call: Call, order: str, runs: RunStore) -> None:
        self._call, self._order, self._runs = call, order, runs

    def bring(self, reply: Reply, address: str) -> list[Record]:
        """Store the files of a reply, and return the records with paths of this workstation.

        Raises TransferError if a large file is no longer available, InputError for a name that
        leads outside, and WorkstationError if a file cannot be stored.
        """
        for item in reply.files:
            target = self._place(item.name)
            part = target.with_name(f"{target.name}.part")
            with kept(target):
                private_folder(target.parent)
                with open_private(part) as stream:
                    for data in self._pieces(item, address):
                        stream.write(data)
                part.replace(target)
        return [self._own(record) for record in (reply.result.records if reply.result else ())]

    def _place(self, name: str) -> Path:
        check_name(name)
        top, _, rest = name.partition("/")
        roots = {"runs": self._runs.root, "undo": undo_root(self._runs)}
        if top not in roots:
            raise TransferError(
                f"a worker of the dask cluster sent {name!r}, a result file that fleet did not "
                "ask for; fleet did not store the file",
                hint="install the version of this workstation on the workers; then run the command "
                "again",
            )
        return roots[top] / rest

    def _pieces(self, item: Carried, address: str) -> Iterator[bytes]:
        if item.data is not None:
            yield item.data
            return
        for offset in range(0, item.size, PIECE_BYTES):
            answers = self._call(
                [address], worker.read_piece, self._order, item.name, offset, PIECE_BYTES
            )
            data = answers.get(address)
            if not isinstance(data, bytes):
                raise TransferError(
                    f"the worker {address} of the dask cluster did not send the result file "
                    f"{item.name}",
                    hint="copy the file by hand from FLEET_HOME/cluster/ on the machine of that "
                    "worker",
                )
            yield data

    def _own(self, record: Record) -> Record:
        """Return the record with the present paths of its artifacts, saved like that."""
        name = f"warmup-{record.repeat}" if record.warmup else str(record.repeat)
        folder = self._runs.root / record.run_id / record.host / name
        own = replace(record, artifacts={key: str(folder / key) for key in record.artifacts})
        return self._runs.save(folder, own)


WINDOW = 2  # tasks for each thread: a running one and a waiting one
POLL_SECONDS = 2.0
REPLY_SECONDS = 30.0
# a nanny restarts a dead worker within seconds, a machine takes longer to boot
ABSENT_SECONDS = 60.0
STARTS = 3  # processes that were started again under the address of a dead process
# Work that another worker may start again: it only reads, or the lease on the board keeps two
# apart. A second run would measure next to the program that the lost worker left running. The undo
# log of system steps is on the machine of the lost worker.
REPEATABLE = {"_plan", "_deploy", "bring"}
_AGAIN = "fleet deploy (resumes where it stopped)"


@dataclass
class _Task:
    host: Host
    attempt: int = 1
    starts: int = 0
    future: Any = None


class FanOut:
    """A call of `everywhere`, with no more open tasks than the workers can use."""

    def __init__(
        self,
        executor: ClusterExecutor,
        job: RemoteJob,
        listener: Listener,
        options: PoolOptions[Any],
    ) -> None:
        self._admit, self._tell = options.admit, options.done
        self._executor, self._job, self._say = executor, job, listener
        self._home = ResultCollection(executor.call, job.order.id, job.runs)
        self._ended: queue.SimpleQueue[tuple[_Task, Any]] = queue.SimpleQueue()
        self._waiting: dict[str, deque[_Task]] = {}
        self._out: dict[str, dict[str, _Task]] = {}
        self._places: dict[str, list[Place]] = {}
        self._absent: dict[str, float] = {}
        self._done: dict[str, DeviceResult[Any]] = {}

    def run(self, hosts: Sequence[Host]) -> list[DeviceResult[Any]]:
        """Return the results in the order of `hosts`.

        An interruption (Ctrl-C) cancels all tasks.
        """
        for host in hosts:
            try:
                may_travel(host)
            except FleetError as error:
                self._fail(host, error)
            else:
                self._waiting.setdefault(site_of(host), deque()).append(_Task(host))
        try:
            self._refresh()
            while len(self._done) < len(hosts):
                self._fill()
                self._collect()
        except BaseException:
            self._cancel()
            raise
        return [self._done[host.name] for host in hosts]

    def _refresh(self) -> None:
        """Update the list of workers, and send the job to the new ones.

        At the first call, raises InputError (a site without worker, another version) and
        UnreachableError (no worker). Later it waits a while for a site, because a lost worker may
        come back.
        """
        first, every = not self._places, self._executor.places()
        if first and not every:
            raise UnreachableError(
                "the dask cluster has no worker",
                hint="start a worker: dask worker SCHEDULER:PORT --nthreads 32",
            )
        problem: FleetError = UnreachableError(
            "the site of this device has no running worker", hint=_AGAIN
        )
        for site in self._waiting:
            try:
                self._places[site] = serving(site, every)
            except InputError:
                if first:
                    raise
                self._places[site] = []
        wanted = {place.address: place for places in self._places.values() for place in places}
        try:
            self._executor.prepare(self._job, list(wanted.values()))
        except FleetError as error:
            if first:
                raise
            problem = error
        for site, waiting in self._waiting.items():
            if self._usable(site):
                self._absent.pop(site, None)
            elif time.monotonic() - self._absent.setdefault(site, time.monotonic()) > (
                ABSENT_SECONDS
            ):
                while waiting:
                    self._fail(waiting.popleft().host, problem)

    def _usable(self, site: str) -> list[Place]:
        return [place for place in self._places[site] if place.address in self._job.prepared]

    def _fill(self) -> None:
        busy = sum(len(tasks) for tasks in self._out.values())
        for site, waiting in self._waiting.items():
            places = self._usable(site)
            out = self._out.setdefault(site, {})
            room = WINDOW * sum(place.threads for place in places) - len(out)
            if self._executor.limit is not None:
                room = min(room, self._executor.limit - busy)
            while room > 0 and waiting:
                task = waiting.popleft()
                if task.attempt == 1 and self._admit is not None and not self._admit(task.host):
                    self._done[task.host.name] = DeviceResult(task.host, "not attempted")
                    continue
                self._send(task, [place.address for place in places], out)
                room, busy = room - 1, busy + 1

    def _send(self, task: _Task, addresses: list[str], out: dict[str, _Task]) -> None:
        host, order = task.host, self._job.order.id
        # A worker that died may have switched the release without finishing its runs.
        owed = task.attempt > 1 or host.name in self._job.owed
        key = f"fleet-{host.name}-{order}-{task.attempt}-{task.starts}"
        task.future = self._executor.client.submit(
            worker.work_on, order, host, task.attempt, owed,
            key=key, workers=addresses, allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip
        out[host.name] = task
        task.future.add_done_callback(lambda future: self._ended.put((task, future)))

    def _collect(self) -> None:
        """Wait for tasks that end; check the workers if none ended for a while."""
        events = []
        try:
            events.append(self._ended.get(timeout=POLL_SECONDS))
            while True:
                events.append(self._ended.get_nowait())
        except queue.Empty:
            pass
        ended = [task for task, future in events if task.future is future]  # else: given up
        good = [task for task in ended if task.future.status == "finished"]
        by_host = self._replies(good)
        if by_host:
            self._job.settle()  # events of a board come before its end
        for task in ended:
            self._out[site_of(task.host)].pop(task.host.name, None)
            self._unflag(task, by_host.get(task.host.name))
            self._settle(task, by_host.get(task.host.name))
        if not ended:
            self._strand()

    def _unflag(self, task: _Task, reply: Reply | None) -> None:
        """Clear the flag of a finished board. Other flags stay while distributed may repeat the
        task.
        """
        name = worker.ticket(self._job.order.id, task.host.name, task.attempt)
        if reply is not None and reply.state == "done":
            self._executor.forget([name])
        else:
            self._job.flags.add(name)

    def _replies(self, tasks: Sequence[_Task]) -> dict[str, Reply]:
        """Return the replies of tasks, without those whose worker died together with its result."""
        futures = [task.future for task in tasks]
        try:
            replies = self._executor.client.gather(futures)
        except Exception:  # noqa: BLE001 - the worst of them may raise anything: ask each task alone
            replies = [self._reply(future) for future in futures]
        named = zip(tasks, replies, strict=True)
        return {task.host.name: reply for task, reply in named if reply is not None}

    @staticmethod
    def _reply(future: Any) -> Reply | None:  # noqa: ANN401 - a distributed.Future
        try:
            reply: Reply = future.result(timeout=REPLY_SECONDS)
        except Exception:  # noqa: BLE001 - lost, whatever the exception
            return None
        return reply

    def _settle(self, task: _Task, reply: Reply | None) -> None:
        if reply is not None and reply.state == "done" and reply.result is not None:
            task.future.release()
            self._bring(task, reply)
        elif reply is not None and reply.state == "unknown" and task.starts < STARTS:
            task.starts += 1
            self._job.prepared.clear()
            self._again(task)
        elif task.future is not None and task.future.status == "cancelled":
            self._fail(task.host, UnreachableError(
                "the dask scheduler ended; the workers finish the step that they are working on",
                hint="start the scheduler, then fleet deploy (resumes where it stopped)",
            ))  # fmt: skip
        else:
            self._lost(task, reply.worker if reply else "")

    def _lost(self, task: _Task, elsewhere: str) -> None:
        """Repeat or fail the work of a board whose worker died.

        Work that may be repeated starts again with another worker, once; other work fails.
        `elsewhere` is the worker that received the work a second time from distributed, or "".
        """
        what = self._job.order.what
        safe = what in REPEATABLE or ":" in what
        if safe and task.attempt == 1:
            task.attempt += 1
            self._say(
                Warned(
                    task.host.name,
                    "the dask worker of this device died; fleet starts again with another worker",
                )
            )
            self._again(task)
            return
        hint = _AGAIN
        if not safe:
            hint = (
                f"fleet doctor --limit {task.host.name} (checks the device); finished results "
                "are in FLEET_HOME/cluster/ on the machine of the worker that died"
            )
        report = f", as the worker {elsewhere} reports" if elsewhere else ""
        self._fail(
            task.host,
            UnreachableError(f"the dask worker that worked on this device died{report}", hint=hint),
        )

    def _again(self, task: _Task) -> None:
        task.future = None
        self._waiting.setdefault(site_of(task.host), deque()).append(task)
        self._refresh()

    def _strand(self) -> None:
        """Give up tasks whose workers are all gone; they would wait for ever."""
        alive = {place.address for place in self._executor.places()}
        for address in set(self._job.prepared) - alive:
            self._job.prepared.pop(address)
        for site, out in self._out.items():
            if out and not self._usable(site):
                stranded = list(out.values())
                self._executor.client.cancel([task.future for task in stranded])
                out.clear()
                for task in stranded:
                    task.future = None
                    self._lost(task, "")
        if any(waiting and not self._out.get(site) for site, waiting in self._waiting.items()):
            self._refresh()

    def _bring(self, task: _Task, reply: Reply) -> None:
        result, host = reply.result, task.host
        if result is None:
            return
        brought_home(result, host, self._job.manifests)
        try:
            result.records = self._home.bring(reply, self._address(reply.worker))
        except (FleetError, OSError) as error:
            self._job.kept.add(host.name)
            own = error if isinstance(error, FleetError) else disk_full(error)
            note(result, own or unforeseen(error))
        for record in result.records:
            self._say(RunDone(host.name, to_plain(record)))
        self._finish(result)

    def _address(self, name: str) -> str:
        every = (place for places in self._places.values() for place in places)
        return next((place.address for place in every if place.name == name), name)

    def _fail(self, host: Host, error: FleetError) -> None:
        result = DeviceResult[Any](host)
        note(result, error)
        self._finish(result)

    def _finish(self, result: DeviceResult[Any]) -> None:
        if result.host.name not in self._done:
            self._done[result.host.name] = result
            self._say(done_event(result))
            if self._tell is not None:
                self._tell(result)

    def _cancel(self) -> None:
        tasks = [task for out in self._out.values() for task in out.values()]
        try:
            self._executor.client.cancel([task.future for task in tasks])
        except (OSError, TimeoutError, RuntimeError) as error:
            raise CancelledError(
                f"cancelled, but the dask scheduler does not answer: {error}"
            ) from error
        self._job.tell(worker.stop_run)
