"""Models as assets/build makes them, but so large that a run takes longer than the clocks around it
do: made for a test, and gone with it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.runtimes.stage import file_lock
from tests.support_runtime import cache_root

from .seen import ROOT

_WANTED = ("ai-edge-litert==2.3.0", "flatbuffers==25.12.19", "gguf==0.19.0", "ml_dtypes", "tqdm")
_SECONDS = 300.0
_MAKE = """
import json, site, sys
site.addsitedir(sys.argv[1])
sys.path.insert(0, sys.argv[2])
maker = __import__(sys.argv[3])
vars(maker).update(json.loads(sys.argv[4]))
run = sys.argv[5]
del sys.argv[1:6]
exec(run)
"""


def make(script: str, target: Path, run: str = "maker.main()", **sizes: int) -> Path:
    """`target`, written by a script of assets/build with other sizes."""
    folder = cache_root() / "programs" / "makers"
    with file_lock(cache_root() / "programs.lock", _SECONDS):
        if not folder.is_dir():
            part = folder.with_name("makers.part")
            shutil.rmtree(part, ignore_errors=True)
            pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(part))
            if subprocess.run([*pip, *_WANTED], check=False, timeout=_SECONDS).returncode:
                pytest.skip(f"pip could not install {' '.join(_WANTED)}")
            part.rename(folder)
    build = ROOT / "assets" / "build"
    told = map(str, (folder, build, script, json.dumps(sizes), run, target))
    subprocess.run([sys.executable, "-c", _MAKE, *told], check=True, timeout=_SECONDS)
    return target
