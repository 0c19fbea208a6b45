"""Translation by exported models: ONNX Runtime and NumPy in place of torch."""
