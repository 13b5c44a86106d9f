"""Says what `make test-programs` fetches, before it does: python -m tests.programs.fetches."""

from __future__ import annotations

import os

from tests.support_runtime import cache_root

WHAT = (
    ("llama.cpp", "Debian sid: list of packages and 10 packages", "24 MB, no build", ""),
    ("litert", "PyPI: ai-edge-litert, ml_dtypes, numpy", "45 MB", ""),
    ("genai, ort", "PyPI: onnxruntime-genai, onnxruntime, onnxruntime-qnn, numpy", "270 MB", ""),
    (
        "executorch",
        "PyPI: executorch, torch, onnxruntime-qnn 2.5.0",
        "1.5 GB on disk, with a torch for the CPU in pip's indexes; PyPI's own brings CUDA",
        "",
    ),
    ("qnn_executor_runner", "Debian: libgflags", "1 MB", "EXECUTORCH_SOURCE"),
    ("genai as a service", "PyPI: openai, litellm", "250 MB on disk", ""),
    ("larger models", "PyPI: gguf, flatbuffers, tqdm, ai-edge-litert", "25 MB", ""),
    ("genie", "PyPI: onnxruntime-qnn 2.3.0 to 2.7.0", "450 MB", ""),
    ("qnn-net-run", "nothing: programs of your SDK", "0 MB", "FLEET_QAIRT_SDK"),
    ("geniex-bench", "nothing: a build for this machine", "0 MB", "FLEET_GENIEX"),
    ("genie-t2t-run", "nothing: a program of your SDK", "0 MB", "FLEET_QAIRT_SDK"),
)

if __name__ == "__main__":
    print(f"fetched once, into {cache_root()}:")  # noqa: T201
    for runner, what, size, wants in WHAT:
        state = f"; only with {wants}=/path" if wants and not os.environ.get(wants) else ""
        print(f"  {runner}: {what} ({size}{state})")  # noqa: T201
