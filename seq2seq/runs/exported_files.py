"""Names of the files of an engine, in an export and in a run folder."""

DESCRIPTION = "export.json"
VOCABULARY = "vocabulary"
TOPK = "topk.onnx"
ENGINE = "engine"  # folder in a run folder
