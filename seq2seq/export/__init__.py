"""Export of trained models to ONNX, for a runtime without torch."""
