"""Train the variants of a comparison on the same data and seeds, then score them."""

from pathlib import Path

from seq2seq.config.schema import Config
from seq2seq.data.corpus import ParallelText, checksum_of_text, read_pairs, usable, valid_text
from seq2seq.data.training_data import cached_text, cached_vocabularies, encoded_text, open_cache
from seq2seq.runs.run_folder import (
    SavedProgress,
    check_folder,
    check_texts,
    holds_run,
    read_progress,
    text_checksums,
)
from seq2seq.runtime import errors
from seq2seq.runtime.console import counted
from seq2seq.runtime.threads import same_threads
from seq2seq.tools.analysis.attention.alignment import GoldLine, read_gold
from seq2seq.tools.analysis.compare.scoring import (
    ComparisonRequest,
    ComparisonResult,
    ScoringTask,
    score_all,
)
from seq2seq.tools.analysis.compare.training import is_trained, train_all
from seq2seq.tools.analysis.compare.variants import Plan
from seq2seq.tools.analysis.scored_text import LengthUnit, length_unit


def compare(plan: Plan, request: ComparisonRequest) -> ComparisonResult:
    """Train the runs that are not finished, translate with all of them, and score the output.

    A run that diverges or needs too much memory is reported, and trained again by the next call.

    Raises UserError before the first training if a run cannot start or resume, RunError if a run
    fails for another reason or all do, and Interrupted as `train` does.
    """
    task, states = _check(plan, request)
    configs = plan.run_configs()
    threads = (state.counters.threads for state in states.values())
    with same_threads(next(filter(None, threads), 0)):
        failures = train_all(configs, states, request.device, request.jobs)
    trained = {
        config.run_dir: states[config.run_dir]
        for config in configs
        if is_trained(config, states.get(config.run_dir))
    }
    return score_all(plan, task, trained, failures)


def _check(plan: Plan, request: ComparisonRequest) -> tuple[ScoringTask, dict[Path, SavedProgress]]:
    """Check all run folders, data and vocabularies; return the states of existing runs."""
    data = plan.variants[0].config.data
    files = data.valid if request.split == "valid" else data.test
    if files is None:
        reason = "the config has no data.test. Set it, or score valid"
        raise errors.UserError(reason, argument="split", value="test")
    read = {config.run_dir: _read_run(config) for config in plan.run_configs()}
    states = {folder: state for folder, state in read.items() if state is not None}
    if not all(is_trained(config, read[config.run_dir]) for config in plan.run_configs()):
        from seq2seq.runtime.device import choose_device, deterministic

        with deterministic(choose_device(request.device)):  # set before any run starts CUDA
            pass
    text = read_pairs(files)
    gold = _read_gold(request.gold, text)
    unit = length_unit(text.src)
    prepared: dict[str, tuple[int, dict[str, str]]] = {}
    for config in plan.run_configs():
        key = repr((config.data, config.vocabulary))
        if key not in prepared:
            prepared[key] = _prepare_data(config, unit)
        if config.run_dir in states:
            check_texts(config.run_dir, states[config.run_dir].header, prepared[key][1])
    longest = max(length for length, _ in prepared.values())
    return ScoringTask(request, text, gold, unit, longest), states


def _read_gold(path: Path | None, text: ParallelText) -> list[GoldLine]:
    """Read the gold alignments of the first lines of a text; raises UserError for more lines."""
    if path is None:
        return []
    gold = read_gold(path)
    if len(gold) > len(text):
        reason = f"has {counted(len(gold), 'line')}, more than the text, which has {len(text):,}"
        raise errors.UserError(f"{path}: {reason}")
    return gold


def _check_training(config: Config) -> None:
    """Raise UserError if training cannot start or resume: its score class, and saved tensors."""
    from seq2seq.runs import checkpoint, training_state

    checkpoint.check_score_class(config)
    training_state.read_state(config.run_dir)


def _read_run(config: Config) -> SavedProgress | None:
    """Return the state of a run, if any; raises UserError for other configs or longer training."""
    exists = holds_run(config.run_dir)
    remedy = f"Set another folder ({errors.argument('output')}), or remove that run."
    try:
        check_folder(config, resume=exists, overwrite=False)
        state = read_progress(config) if exists else None
        if not is_trained(config, state):
            _check_training(config)
    except errors.UserError as error:
        raise errors.UserError(*error.lines, *([f"  {remedy}"] if exists else [])) from None
    if state is None:
        return None
    counters = state.counters
    started_epochs = counters.epoch + (counters.batch > 0)
    for key, value in (("max_steps", counters.step), ("max_epochs", started_epochs)):
        limit = getattr(config.training, key)
        if limit is not None and value > limit:
            text = f"{config.run_dir}: already trained to {value}, beyond training.{key}={limit}."
            raise errors.UserError(f"{text} {remedy}")
    return state


def _prepare_data(config: Config, unit: LengthUnit) -> tuple[int, dict[str, str]]:
    """Prepare data as `train` does; return the length of the longest source, and checksums."""
    with open_cache(config.data.train, config.run_dir) as cache:
        text, _ = cached_text(config.data.train, cache)
        valid = valid_text(config.data, text.text)
        usable(valid)  # raises if no pair has text
        vocabularies, _ = cached_vocabularies(text, config.vocabulary)
        pairs = encoded_text(text, vocabularies, config.data.max_length)[0].pairs
        if not len(pairs):
            fault = f"every training pair is longer than {config.data.max_length} tokens. Raise it."
            raise errors.UserError(f"{config.name}: data.max_length: {fault}")
        longest = max(map(unit.length, pairs.src_texts))
        return longest, text_checksums(text.checksum, checksum_of_text(valid))
