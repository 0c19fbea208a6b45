"""Train the variants of a comparison on the same data and seeds, then score them."""

from pathlib import Path

from seq2seq.config.schema import Config
from seq2seq.data.corpus import checksum_of_text, read_pairs, usable, valid_text
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
from seq2seq.runtime.console import logger
from seq2seq.runtime.threads import same_threads
from seq2seq.tools.analysis.compare.scoring import ComparisonResult, ScoringTask, score_all
from seq2seq.tools.analysis.compare.variants import Plan
from seq2seq.tools.analysis.scored_text import LengthUnit, length_unit
from seq2seq.training.stopping import is_finished


def compare(
    plan: Plan,
    split: str = "valid",
    device: str = "auto",
    beam: int | None = None,
    lowercase: bool = False,
) -> ComparisonResult:
    """Train the runs that are not finished, translate with all of them, and score the output.

    `beam` overrides the beam size of the variants. A run that diverges or needs too much memory is
    reported, and trained again by the next call.

    Raises UserError before the first training if a run cannot start or resume, RunError if a run
    fails for another reason or all do, and Interrupted as `train` does.
    """
    task, states = _check(plan, split, device, beam, lowercase)
    recorded = (state.counters.threads for state in states.values())
    with same_threads(next(filter(None, recorded), 0)):
        failures = _train_all(plan, states, device)
    return score_all(plan, task, states, failures)


def _check(
    plan: Plan, split: str, device: str, beam: int | None, lowercase: bool
) -> tuple[ScoringTask, dict[Path, SavedProgress]]:
    """Check all run folders, data and vocabularies; return the states of existing runs."""
    data = plan.variants[0].config.data
    files = data.valid if split == "valid" else data.test
    if files is None:
        reason = "the config has no data.test. Set it, or score valid"
        raise errors.UserError(reason, argument="split", value="test")
    read = {config.run_dir: _read_run(config) for config in plan.run_configs()}
    states = {folder: state for folder, state in read.items() if state is not None}
    if not all(_is_trained(config, read[config.run_dir]) for config in plan.run_configs()):
        from seq2seq.runtime.device import choose_device, deterministic

        with deterministic(choose_device(device)):  # has to be set before any run starts CUDA
            pass
    text = read_pairs(files)
    unit = length_unit(text.src)
    prepared: dict[str, tuple[int, dict[str, str]]] = {}
    for config in plan.run_configs():
        key = repr((config.data, config.vocabulary))
        if key not in prepared:
            prepared[key] = _prepare_data(config, unit)
        if config.run_dir in states:
            check_texts(config.run_dir, states[config.run_dir].header, prepared[key][1])
    longest = max(length for length, _ in prepared.values())
    return ScoringTask(split, text, unit, longest, device, beam, lowercase), states


def _is_trained(config: Config, state: SavedProgress | None) -> bool:
    return state is not None and is_finished(config, state.counters)


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
        if not _is_trained(config, state):
            _check_training(config)
    except errors.UserError as error:
        raise errors.UserError(*error.lines, *([f"  {remedy}"] if exists else [])) from None
    if state is None:
        return None
    counters = state.counters
    started_epochs = counters.epoch + (counters.batch > 0)
    for key, done in (("max_steps", counters.step), ("max_epochs", started_epochs)):
        limit = getattr(config.training, key)
        if limit is not None and done > limit:
            text = f"{config.run_dir}: already trained to {done}, beyond training.{key}={limit}."
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


def _train_all(plan: Plan, states: dict[Path, SavedProgress], device: str) -> dict[Path, str]:
    """Train the runs that are not finished; remove their old states. Returns why runs failed."""
    configs, failures = plan.run_configs(), dict[Path, str]()
    for number, config in enumerate(configs, start=1):
        if _is_trained(config, states.get(config.run_dir)):
            logger.info(f"Run {number} of {len(configs)}: {config.run_dir} is already trained")
            continue
        from seq2seq.training import loop

        logger.info(f"Run {number} of {len(configs)}: {config.run_dir}")
        states.pop(config.run_dir, None)
        try:
            with errors.argument_spelled("resume", "the same command"):
                loop.train(config, device, resume=holds_run(config.run_dir))
        except (errors.UserError, errors.RunError, MemoryError, RuntimeError) as error:
            failures[config.run_dir] = _failure(error, config)
            logger.info(f"warning: {config.name} failed: {failures[config.run_dir]}")
    return failures


def _failure(error: Exception, config: Config) -> str:
    """Return why a run failed if that lies in its config; raise RunError, or the error, if not."""
    if isinstance(error, errors.UnsuitableRun):
        return " ".join(error.lines)
    if isinstance(error, errors.ReportedError):
        raise errors.RunError(f"{config.name}: {error.lines[0]}", *error.lines[1:]) from None
    if errors.is_out_of_memory(error):
        return "out of memory; reduce training.batch_tokens or the size of the model"
    raise error
