"""What a tool is: a command for one push, and what it needs to be there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .wiring import Endpoint, Wiring


@dataclass(frozen=True)
class Command:
    """What is started, in the environment of this process and `env`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Push:
    """One push: `source` (a file or a folder) to the board `endpoint`.

    `scratch` is an empty folder of this push; `home` is fleet's own, with its caches, and is
    kept between two pushes where a scenario says so. `peers` is the Python of the peers.
    """

    source: Path
    endpoint: Endpoint
    wiring: Wiring
    scratch: Path
    home: Path
    peers: Path | None = None


@dataclass(frozen=True)
class Tool:
    """`programs` must be on this host, `there` on the board, `module` in the peers' Python."""

    name: str
    build: Callable[[Push], Command]
    kind: str = "peer"
    programs: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    module: str = ""
    package: str = ""
    get: str = ""
    main: bool = True

    def lacks(self, peers: Path | None, has: Callable[[str], bool]) -> str:
        """How to get what is missing; "" when all is there."""
        for one in self.programs:
            if shutil.which(one) is None:
                return self.get or f"{one} is not on this host"
        if self.module:
            package = self.package or self.module
            if peers is None:
                return f"pip install {package} into an environment, --peers-python ITS/bin/python"
            if not importable(peers, self.module):
                return f"pip install {package} into the environment of --peers-python"
        for one in self.there:
            if not has(one):
                return f"{one} is not on the board"
        return ""


@cache
def importable(python: Path, module: str) -> bool:
    """Whether an interpreter has a module."""
    code = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"
    argv = [str(python), "-c", code, module]
    try:
        return subprocess.run(argv, check=False, timeout=60, capture_output=True).returncode == 0
    except OSError:
        return False


@cache
def version(python: Path, module: str) -> str:
    """The version of a distribution there, "" when there is none."""
    code = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    argv = [str(python), "-c", code, module]
    done = subprocess.run(argv, check=False, timeout=60, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
