"""Engine on ONNX Runtime: traced graphs, checked, in float32 or int8."""
