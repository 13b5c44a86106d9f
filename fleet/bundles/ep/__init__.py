"""EPContext: context binaries inside ONNX models, as ONNX Runtime's QNN provider loads them."""
