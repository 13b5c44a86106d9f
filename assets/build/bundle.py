"""Write the files of the Genie bundle around the context binary."""

import hashlib
import json
import re
from pathlib import Path

from compile import ARCH, SOC_MODEL
from shape import BOS, EOS, Shape

BINARY = "tiny_genie_part_1_of_1.bin"
PROMPT = "What is fleet?"

_BUILD_ID = re.compile(rb"v(\d+\.\d+\.\d+\.\d{12})\b")


def genie_config(shape: Shape) -> dict[str, object]:
    """Give Genie's configuration; its paths are relative to the folder it runs in."""
    htp = {
        "version": 1,
        "use-mmap": False,
        "spill-fill-bufsize": 0,
        "mmap-budget": 0,
        "poll": False,
        "cpu-mask": "0x0",
        "kv-dim": shape.head,
        "pos-id-dim": shape.half,
        "allow-async-init": False,
        "rope-theta": int(shape.theta),
    }
    backend = {
        "version": 1,
        "type": "QnnHtp",
        "QnnHtp": htp,
        "extensions": "htp_backend_ext_config.json",
    }
    binary = {"version": 1, "ctx-bins": [BINARY]}
    dialog = {
        "version": 1,
        "type": "basic",
        "context": {
            "version": 1,
            "size": shape.context,
            "n-vocab": shape.vocab,
            "bos-token": BOS,
            "eos-token": EOS,
        },
        "sampler": {"version": 1, "seed": 42, "temp": 1.0, "top-k": 1, "top-p": 1.0},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1,
            "n-threads": 1,
            "backend": backend,
            "model": {"version": 1, "type": "binary", "binary": binary},
        },
    }
    return {"dialog": dialog}


def extension_config() -> dict[str, object]:
    """Give the settings of the HTP backend."""
    core = {"core_id": 0, "perf_profile": "burst", "rpc_control_latency": 100}
    device = {"soc_model": SOC_MODEL, "dsp_arch": f"v{ARCH}", "cores": [core]}
    return {
        "devices": [device],
        "memory": {"mem_type": "shared_buffer"},
        "context": {"weight_sharing_enabled": True},
    }


def build_id(binary: bytes) -> str:
    """Give the one QAIRT build id that stands in a context binary."""
    (found,) = set(_BUILD_ID.findall(binary))
    return found.decode("ascii")


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_bundle(shape: Shape, folder: Path, binary: Path, template: str = "{}") -> None:
    """Write everything but `tokenizer.json`, which must be there already; sums come last."""
    content = binary.read_bytes()
    (folder / BINARY).write_bytes(content)
    _write_json(folder / "genie_config.json", genie_config(shape))
    _write_json(folder / "htp_backend_ext_config.json", extension_config())
    (folder / "tool-versions.yaml").write_text(f"qairt: {build_id(content)}\n", encoding="utf-8")
    (folder / "sample_prompt.txt").write_text(template.format(PROMPT + "\n"), encoding="utf-8")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name != "SHA256SUMS"
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
