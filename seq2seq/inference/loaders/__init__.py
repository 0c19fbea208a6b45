"""Loaders of models: of exported folders, and of run folders by ONNX Runtime or torch."""
