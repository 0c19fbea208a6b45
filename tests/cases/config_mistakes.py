"""Mistakes in a config and its overrides: rows of the table in test_mistakes.py."""

from cases.mistakes import Row, change_config, config_errors, write

TRAIN = "train config.yaml"
CONFIGS = {
    "no such config": Row(
        "train confg.yaml", "confg.yaml: no such file; did you mean 'config.yaml'?"
    ),
    "no config yet": Row(
        "train mine.yml", "mine.yml: no such file; seq2seq init writes a config that suits your..."
    ),
    "a folder as config": Row("train folder", "folder: is a folder, not a config file"),
    "a run as config": Row(
        "train luong", "luong: is a folder, not a config file; did you mean 'luong/config.yaml'?"
    ),
    "data as config": Row(
        "train train.src",
        "train.src: the top level is not a mapping; write lines such as `name: my-run`",
    ),
    "an empty config": Row(TRAIN, "config.yaml: the file is empty...", write("config.yaml", "")),
    "no YAML": Row(
        TRAIN,
        config_errors("line 11: column 6: invalid YAML: ..."),
        change_config("size: 340}", "size: 340"),
    ),
    "a tab": Row(
        TRAIN,
        config_errors("line 4: begins with a tab; indent with spaces"),
        change_config("  src_", "\tsrc_"),
    ),
    "another encoding": Row(
        TRAIN,
        "config.yaml:1: byte 0xe9 is not UTF-8; save the file as UTF-8",
        write("config.yaml", b"name: caf\xe9\n"),
    ),
    "an unknown section": Row(
        TRAIN,
        config_errors("line 11: modle: unknown key; did you mean 'model'?"),
        change_config("model:", "modle:"),
    ),
    "an unknown key": Row(
        TRAIN,
        config_errors("line 11: model.hiden_size: unknown key; did you mean 'hidden_size'?"),
        change_config("hidden_size", "hiden_size"),
    ),
    "a key of another section": Row(
        TRAIN,
        config_errors("line 11: model.beam_size: unknown key; did you mean 'decoding.beam_size'?"),
        change_config("hidden_size", "beam_size"),
    ),
    "a key like no other": Row(
        TRAIN, config_errors("line 11: model.xyz: unknown key"), change_config("hidden_size", "xyz")
    ),
    "a missing key": Row(
        TRAIN,
        config_errors("data.src_lang: required key is missing"),
        change_config("  src_lang: xx\n", ""),
    ),
    "a missing section": Row(
        TRAIN,
        config_errors("training: set at least one of max_epochs, max_steps and max_minutes"),
        change_config("training: {max_steps: 1, log_every: 40}\n", ""),
    ),
    "a key twice": Row(
        TRAIN,
        config_errors("line 13: name: set twice, first on line 1; remove one of the two"),
        change_config("log_every: 40}\n", "log_every: 40}\nname: again\n"),
    ),
    "a section of one value": Row(
        TRAIN,
        config_errors("line 10: vocabulary: must be a section with keys; got 340"),
        change_config("{size: 340}", "340"),
    ),
    "a list": Row(
        TRAIN,
        config_errors("line 10: vocabulary.size: must be an integer; got a list"),
        change_config("340", "[340]"),
    ),
    "an empty text": Row(
        TRAIN, config_errors("line 1: name: must not be empty"), change_config("small", "''")
    ),
    "a name of no file": Row(
        TRAIN,
        config_errors("line 2: run_dir: must not contain a NUL character; got 'a\\x00b'"),
        change_config("run_dir: run", 'run_dir: "a\\0b"'),
    ),
    "one side only": Row(
        TRAIN,
        config_errors(
            "line 7: data.valid: set either src and tgt, or file alone (null unsets a key)"
        ),
        change_config(", tgt: valid.tgt", ""),
    ),
    "both forms": Row(
        TRAIN,
        config_errors(
            "line 7: data.valid.file: set either src and tgt, or file alone (null unsets a key); "
            "got a.tsv"
        ),
        change_config("tgt: valid.tgt", "tgt: valid.tgt, file: a.tsv"),
    ),
    "the same file on both sides": Row(
        TRAIN,
        config_errors(
            "line 6: data.train: src and tgt are the same file; set tgt to the translation"
        ),
        change_config("train.tgt", "train.src"),
    ),
    "a tag": Row(
        TRAIN,
        config_errors("line 1: name: the tag !!int is not supported; write the value itself"),
        change_config("name: small", "name: !!int 3"),
    ),
    "four mistakes": Row(
        f"{TRAIN} decoding.beam_size=0",
        config_errors(
            "line 10: vocabulary.size: must be an integer; got many",
            "line 11: model.hiden_size: unknown key; did you mean 'hidden_size'?",
            "line 12: training.log_evry: unknown key; did you mean 'log_every'?",
            "decoding.beam_size (override): must be at least 1; got 0",
        ),
        lambda: [
            change_config("340", "many")(),
            change_config("hidden_size", "hiden_size")(),
            change_config("log_every", "log_evry")(),
        ],
    ),
}

OVERRIDES = {
    "seed=x": "must be an integer; got x",
    "seed=-1": "must be at least 0; got -1",
    "seed=1e30": "must be less than 9223372036854775808; got 1e30",
    "name=": "must be a string; got null",
    "vocabulary.type=sentencepiece": (
        "must be 'unigram', 'bpe', 'word' or 'char'; got sentencepiece"
    ),
    "vocabulary.size=15": "must be at least 16; got 15",
    "vocabulary.size=3e9": "must be at most 1000000; got 3e9",
    "vocabulary.joint=2": "must be true or false; got 2",
    "vocabulary.sampling=1.5": "must be at most 1; got 1.5",
    "model.decoder=bahdnau": (
        "must be 'bahdanau', 'luong', 'gnmt' or 'none'; got bahdnau; did you mean 'bahdanau'?"
    ),
    "model.score=dot": "decoder bahdanau takes additive, normed_additive, coverage; got dot",
    "model.input_feeding=true": "input feeding belongs to decoder luong; got true",
    "model.window=local": "must be 'local_m' or 'local_p'; got local; did you mean 'local_p'?",
    "model.encoder=both": ("must be 'bidirectional', 'forward' or 'reversed'; got both"),
    "model.hidden_size=21": "must be even with a bidirectional encoder; got 21",
    "model.hidden_size=2.5": "must be an integer; got 2.5",
    "model.embedding_size=0": "must be at least 1; got 0",
    "model.embedding_size=1e9": "must be at most 65536; got 1e9",
    "model.layers=100": "must be at most 64; got 100",
    "model.dropout=1": "must be less than 1; got 1",
    "model.dropout=-0.1": "must be at least 0; got -0.1",
    "model.hiden=3": "unknown key; did you mean 'hidden_size'?",
    "model.dropot=0.1": "unknown key; did you mean 'dropout'?",
    "training.optimizer=adm": ("must be 'adam', 'adamw' or 'sgd'; got adm; did you mean 'adam'?"),
    "training.learning_rate=0": "must be greater than 0; got 0",
    "training.learning_rate=nan": "must be a finite number; got nan",
    "training.learning_rate=fast": "must be a number; got fast",
    "training.max_minutes=-1": "must be greater than 0; got -1",
    "training.precision=fp61": (
        "must be 'float32', 'bf16', 'fp16' or 'auto'; got fp61; did you mean 'fp16'?"
    ),
    "training.average=1": "must be less than 1; got 1",
    "training.batch_tokens=0": "must be at least 1; got 0",
    "training.keep=-1": "must be at least 0; got -1",
    "training.warmup_steps=-1": "must be at least 0; got -1",
    "training.decay=invers_sqrt": (
        "must be 'constant', 'inverse_sqrt', 'linear', 'cosine' or 'plateau'; got invers_sqrt; "
        "did you mean 'inverse_sqrt'?"
    ),
    "decoding.coverage_penalty=-1": "must be at least 0; got -1",
    "decoding.no_repeat_ngram=-1": "must be at least 0; got -1",
    "decoding.no_repeat_ngram=1.5": "must be an integer; got 1.5",
    "decoding.replace_unknown=maybe": "must be true or false; got maybe",
    "decoding.beam_size=1e20": "must be at most 1000000; got 1e20",
    "decoding.min_length=1e30": "must be at most 10000; got 1e30",
    "decoding.length_penalty=1e5": "must be at most 10; got 1e5",
    "training.log_every=1e13": "must be at most 10000; got 1e13",
    "decoding.beam_size=0": "must be at least 1; got 0",
    "decoding.length_penalty=inf": "must be a finite number; got inf",
    "decoding=5": ("must be a section with keys; got 5; set them one by one: decoding.KEY=VALUE"),
}
CONFIGS |= {
    override: Row(
        f"{TRAIN} {override}", config_errors(f"{override.partition('=')[0]} (override): {reason}")
    )
    for override, reason in OVERRIDES.items()
}
CONFIGS |= {
    **{
        f"an override of no value: {call}": Row(
            f"{TRAIN} {call}",
            config_errors("seed (override): expected section.key=value, such as model.dropout=0.2"),
        )
        for call in ("seed", "--resume seed")
    },
    "an override below a value": Row(
        f"{TRAIN} model.decoder.x=1",
        config_errors(
            "model.decoder.x=1 (override): model.decoder has a single value; give it a new one"
        ),
    ),
    "words do not sample": Row(
        f"{TRAIN} vocabulary.type=word vocabulary.sampling=0.1",
        config_errors(
            "vocabulary.sampling (override): must be 0 with type word, "
            "which has a single segmentation; got 0.1"
        ),
    ),
    "a plateau of no length": Row(
        f"{TRAIN} training.decay=plateau",
        config_errors(
            "line 12: training: decay plateau needs patience, the validations without improvement"
        ),
    ),
    "two passes that are the same": Row(
        f"{TRAIN} model.dropout=0 training.losses.consistency=1",
        config_errors(
            "training (override): losses: consistency needs model.dropout above 0; "
            "both passes are equal"
        ),
    ),
    "scheduled sampling of no length": Row(
        f"{TRAIN} training.scheduled_sampling=linear",
        config_errors("training.scheduled_sampling.steps: required key is missing"),
    ),
    "heads that do not share alike": Row(
        f"{TRAIN} model.decoder=luong model.score.scaled_dot=3 model.attention_size=10",
        config_errors(
            "model.attention_size (override): must be a multiple of the 3 heads of "
            "{scaled_dot: 3}; got 10"
        ),
    ),
    "attention without a decoder for it": Row(
        f"{TRAIN} model.decoder=none model.score=dot",
        config_errors("model.score (override): decoder none has no attention; got dot"),
    ),
    "a size for a score without one": Row(
        f"{TRAIN} model.decoder=luong model.score=dot model.attention_size=4",
        config_errors("model.attention_size (override): score dot has no attention size; got 4"),
    ),
}
