"""Loaders of models: of exported folders, by ONNX Runtime, by torch."""
