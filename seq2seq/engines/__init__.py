"""Engines: models behind the calls of search, computed by torch or by ONNX Runtime."""
