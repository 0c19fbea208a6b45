"""Names of the files of an exported model; torch is not needed to read them."""

DESCRIPTION = "export.json"
VOCABULARY = "vocabulary"
TOPK = "topk.onnx"
