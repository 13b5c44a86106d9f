"""Writes a tiny network as .pte for Qualcomm's backend: make_executorch.py FOLDER.

A convolution, ReLU, mean and linear layer with random weights, quantized, compiled by the QAIRT of
QNN_SDK_ROOT for SM8650 (Hexagon v75), with an input and what torch gives for it in float. Needs
executorch 1.5.1, torch 2.13.0, torchao 0.18.0, pydot, graphviz, tqdm, and onnxruntime-qnn 2.5.0,
whose onnxruntime_qnn stands as lib/x86_64-linux-clang of that SDK, its .libs beside.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.backends.qualcomm.export_utils import make_quantizer
from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
from executorch.backends.qualcomm.utils.utils import (
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    to_edge_transform_and_lower_to_qnn,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e


class Network(torch.nn.Module):
    """1x3x16x16 to 1x4."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.linear(torch.relu(self.convolution(x)).mean((2, 3)))


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    network, x = Network().eval(), (torch.rand(1, 3, 16, 16),)
    prepared = prepare_pt2e(torch.export.export(network, x, strict=True).module(), make_quantizer())
    prepared(*x)
    spec = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset.SM8650, backend_options=generate_htp_compiler_spec(use_fp16=False)
    )
    lowered = to_edge_transform_and_lower_to_qnn(convert_pt2e(prepared), x, spec)
    (folder / "tiny.pte").write_bytes(lowered.to_executorch().buffer)
    x[0].numpy().tofile(folder / "x.raw")
    network(*x).detach().numpy().tofile(folder / "y.raw")
    (folder / "input_list.txt").write_text("x.raw\n")


if __name__ == "__main__":
    main()
