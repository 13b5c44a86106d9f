"""The deadline for the patterns if RE2 is missing: a log is read in a child process."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fleet.model.errors import DeadlineError
from fleet.model.extras import install_extra
from fleet.triage import patterns

SECONDS = 60.0  # for one log
_CHILD = "from fleet.triage.bounded import child; child()"
_P = ParamSpec("_P")
_R = TypeVar("_R")
_inside = False


def bounded(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a function of a module so that it ends within SECONDS.

    With RE2 it is called directly. Without RE2 it runs in a child process, so its arguments and its
    result must be plain data. It then raises DeadlineError if the patterns take longer.
    """

    @functools.wraps(work)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if patterns.LINEAR or _inside:
            return work(*args, **kwargs)
        answer: _R = _elsewhere(work.__module__, work.__name__, args, kwargs)
        return answer

    return call


def _elsewhere(*task: Any) -> Any:  # noqa: ANN401 - what the function returns
    """Call a function in a child process and return its result.

    Raises the errors of the function.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD],
            input=pickle.dumps(task),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(
            f"the patterns of the doctor took longer than {SECONDS:g} s over this log",
            hint=f"{install_extra('re2')} (a faster matcher), or give a part of the log",
        ) from error
    fine, value = pickle.loads(done.stdout)  # noqa: S301 - from our own child
    if not fine:
        raise value
    return value


def child() -> None:
    """Run the call from standard input, and write its result to standard output."""
    global _inside  # noqa: PLW0603 - of this process alone
    _inside = True
    module, name, args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent
    try:
        answer = True, getattr(importlib.import_module(module), name)(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - it is raised again in the parent
        answer = False, error
    sys.stdout.buffer.write(pickle.dumps(answer))
