"""One self-contained HTML page of runs. Needs vl-convert-python: `npu-fleet[report]`."""
