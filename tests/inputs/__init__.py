"""The smallest of the real inputs that fleet once got wrong, in our own words, by their number.

`genie_bundle` makes a folder in which every file that a Genie configuration names is there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent
TINY = Path(__file__).parents[2] / "assets/tiny-genie"
_FILES = {"path", "extensions", "lut-path", "model-bin", "bin-sections", "quant-bin-sections",
          "draft-token-map", "ctx-bins", "scoring-network"}  # fmt: skip


def of(case: str) -> Path:
    """Return the only input whose name begins so: `C02`, or `C19.depth`."""
    (found,) = HERE.glob(f"{case}.*")
    return found


def genie_bundle(config: Path, folder: Path, name: str = "genie_config.json") -> Path:
    """Make a bundle: context binaries are copies of assets/tiny-genie's, the rest a few bytes."""
    folder.mkdir(parents=True)
    shutil.copy(config, folder / name)
    (folder / "tool-versions.yaml").write_text("qairt: 2.51.0.260929181845\n")
    _put(json.loads(config.read_text()), folder)
    return folder


def _put(value: object, folder: Path) -> None:
    if isinstance(value, list):
        for item in value:
            _put(item, folder)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in _FILES:
                for text in item if isinstance(item, list) else [item]:
                    _file(folder / text, key)
            else:
                _put(item, folder)


def _file(path: Path, key: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if key == "ctx-bins":
        shutil.copy(TINY / "tiny_genie_part_1_of_1.bin", path)
    elif key == "extensions":
        shutil.copy(TINY / "htp_backend_ext_config.json", path)
    elif path.name == "tokenizer.json":
        shutil.copy(TINY / "tokenizer.json", path)
    else:
        path.write_bytes(b"x" * 64)
