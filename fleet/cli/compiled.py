"""What `dataclasses` compiles for each class, kept beside Python's own bytecode.

`dataclasses` writes the source of up to six methods a class and compiles it in every process
(Python 3.11, Lib/dataclasses.py, `_create_fn`): a quarter of the start of a push. The same source
gives the same code, so an installation compiles it once. Where `__pycache__` cannot be read or
written, all is compiled as ever; PYTHONDONTWRITEBYTECODE is obeyed.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import marshal
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

_MOST = 4000  # sources; an installation has some 1,500, and a checkout adds what is edited


class Compiled:
    """Marshalled code by its source, in the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = _read(path)
        self._before = len(self._kept)

    def run(self, source: str, *names: Any) -> None:  # noqa: ANN401 - as `exec`
        """As `exec(source, globals, locals)`."""
        kept = self._kept.get(source)
        code = _code(kept) if kept else None
        if code is None:
            code = compile(source, "<string>", "exec")
            self._kept[source] = marshal.dumps(code)
        exec(code, *names)  # noqa: S102 - of dataclasses, which would do it itself

    def save(self) -> None:
        """Keep what is new, whole or not at all."""
        if not self._before < len(self._kept) <= _MOST:
            return
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            try:
                part.write_bytes(marshal.dumps(self._kept))
                part.replace(self.path)
            except OSError:
                part.unlink()


def install(cached: str | None) -> None:
    """Let `dataclasses` use what is kept beside `cached`, the file of a module's bytecode."""
    if not cached:
        return
    compiled = Compiled(Path(cached).with_suffix(".dataclasses"))
    vars(dataclasses)["exec"] = compiled.run
    if not sys.dont_write_bytecode:
        atexit.register(compiled.save)


def _read(path: Path) -> dict[str, bytes]:
    try:
        found = marshal.loads(path.read_bytes())  # noqa: S302 - as trusted as the bytecode beside it
    except (OSError, EOFError, ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(kept: bytes) -> CodeType | None:
    try:
        found = marshal.loads(kept)  # noqa: S302 - the same
    except (EOFError, ValueError, TypeError):
        return None
    return found if isinstance(found, CodeType) else None
