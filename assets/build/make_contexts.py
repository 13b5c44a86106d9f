"""Make the tiny contexts of fleet/data/contexts, one for each Hexagon arch.

onnxruntime 1.27.0 with onnxruntime-qnn 2.3.0 (QAIRT 2.47.0), which every later QAIRT loads:
`python assets/build/make_contexts.py tests/bundles/data/tiny_u8.onnx fleet/data/contexts`.
A process for each arch: the provider is registered once.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

CHIPS = {68: 30, 69: 36, 73: 77, 75: 57, 79: 69, 81: 87}
"""Hexagon arch → soc_model of a chip with it: SM8350, SM8450, QCS9075, SM8650, SM8750, SM8850."""


def main(model: str, folder: str, arch: str = "") -> None:
    """All archs, or one."""
    if not arch:
        for number in CHIPS:
            subprocess.run([sys.executable, __file__, model, folder, str(number)], check=True)
        return
    import compile as compiler  # noqa: PLC0415 - onnxruntime
    import onnx  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as work:
        number = int(arch)
        made = compiler.compile_graph(onnx.load(model), Path(work), CHIPS[number], number)
        target = Path(folder) / f"tiny-v{arch}-qairt2.47.0.bin"
        target.write_bytes(made.read_bytes())


main(*sys.argv[1:])
