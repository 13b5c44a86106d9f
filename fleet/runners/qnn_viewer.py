"""Profile logs of qnn-net-run, as qnn-profile-viewer reads them: on the device, else here."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fleet.model.errors import ProfileError
from fleet.profiles.formats import qnn
from fleet.profiles.formats.base import Profile

VIEWER = "bin/x86_64-linux-clang/qnn-profile-viewer"
JSON_READER = "libQnnJsonProfilingReader.so"
JSON, CSV, WORDS = "profile.json", "profile.csv", "viewer.txt"
VIEWER_SECONDS = 120.0


def viewed(root: Path | None, files: Mapping[str, bytes]) -> tuple[dict[str, bytes], str]:
    """What a viewer makes of the log among `files`, or why that is nothing.

    The one on the device is of the SDK that wrote the log; where it left nothing, the one of
    `root`, the runtime on this host, reads it. Its JSON has the operations; only its table (CSV)
    has the times of qnn-net-run itself.
    """
    there = {name: files[name] for name in (JSON, CSV) if files.get(name)}
    log = next((data for name, data in files.items() if "profiling-data" in name), None)
    if there or log is None:
        return there, ""
    here, why = _viewed_here(root, log)
    words = files.get(WORDS, b"").decode("utf-8", "replace").strip().splitlines()
    return here, (
        f"{why}; qnn-profile-viewer also failed on the device: {' | '.join(words[-2:])}"
    ) if why and words else why


def merged(files: Mapping[str, bytes]) -> tuple[Profile | None, str]:
    """The operations of the JSON, and from the table what qnn-net-run itself took. Where one
    cannot be read, the other alone; and why.
    """
    said = {name: data.decode("utf-8", "replace") for name, data in files.items()}
    try:
        return qnn.merged(said.get(JSON), said.get(CSV)), ""
    except ProfileError:
        whole, wrong = list[Profile](), list[str]()
    for name, text in said.items():
        try:
            whole.append(qnn.merged(text, None) if name == JSON else qnn.merged(None, text))
        except ProfileError as error:
            wrong.append(f"{name}: {error.message}")
    return (whole[0] if whole else None), "; ".join(wrong)


def _viewed_here(root: Path | None, log: bytes) -> tuple[dict[str, bytes], str]:
    viewer = root / VIEWER if root is not None else None
    if viewer is None or not viewer.is_file():
        return {}, (f"fleet could not convert the profile log, because the runtime has no {VIEWER}")
    library = viewer.parents[2] / "lib" / viewer.parent.name
    reader = library / JSON_READER
    wanted = {JSON: ["--reader", str(reader)]} if reader.is_file() else {}
    found: dict[str, bytes] = {}
    why = ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "profile.log")
        source.write_bytes(log)
        for name, more in {**wanted, CSV: []}.items():
            target = Path(folder, name)
            said = _view([str(viewer), *more], source, target, library)
            if target.is_file() and target.stat().st_size:
                found[name] = target.read_bytes()
            else:
                why = said
    return found, "" if found else why


def _view(argv: list[str], source: Path, target: Path, library: Path) -> str:
    """Start the viewer with the user's own environment: the SDK's libraries are built on libc++,
    which no SDK brings. Returns why `target` was not written.
    """
    paths = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    try:
        done = subprocess.run(
            [*argv, "--input_log", str(source), "--output", str(target)],
            capture_output=True,
            check=False,
            timeout=VIEWER_SECONDS,
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(paths)},
        )
    except PermissionError:  # an older fleet stored programs of a zip so
        return f"qnn-profile-viewer cannot start; chmod +x {shlex.quote(argv[0])}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"qnn-profile-viewer failed: {error}"
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    cure = (
        "; sudo apt install libc++1 libc++abi1" if any("libc++" in line for line in words) else ""
    )
    return f"qnn-profile-viewer did not write a file: {' | '.join(words[-2:])}{cure}"
