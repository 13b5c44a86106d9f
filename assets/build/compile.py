"""Compile a quantised graph to an HTP context binary with onnxruntime-qnn."""

from pathlib import Path

import onnx
import onnxruntime as ort
import onnxruntime_qnn as qnn

SOC_MODEL, ARCH = 77, 73
"""QCS9075 and QCS9100; Hexagon v73."""

_PROVIDER = "QNNExecutionProvider"


def compile_graph(
    model: onnx.ModelProto, work: Path, soc_model: int = SOC_MODEL, arch: int = ARCH
) -> Path:
    """Give the context binary of one graph. Raises if any node would stay on the CPU."""
    ort.register_execution_provider_library(_PROVIDER, qnn.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == _PROVIDER][:1]
    wrapper = work / "context.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3
    for key, value in {
        "ep.context_enable": "1",
        "ep.context_embed_mode": "0",
        "ep.context_file_path": str(wrapper),
        "session.disable_cpu_ep_fallback": "1",
    }.items():
        options.add_session_config_entry(key, value)
    options.add_provider_for_devices(
        devices,
        {
            "backend_path": qnn.get_qnn_htp_path(),
            "htp_arch": str(arch),
            "soc_model": str(soc_model),
            "offload_graph_io_quantization": "0",
        },
    )
    ort.InferenceSession(model.SerializeToString(), options)  # a path would name the graph
    (binary,) = work.glob("context*.bin")
    return binary
