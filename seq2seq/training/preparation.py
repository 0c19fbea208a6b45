"""Set up a new or resumed run in its folder, and say what the log says of it."""

from pathlib import Path

import torch

from seq2seq.config.schema import Config
from seq2seq.data.corpus import checksum_of_text, same_sides, trained_on, usable, valid_text
from seq2seq.data.training_data import (
    CachedText,
    cache_notes,
    cached_text,
    cached_vocabularies,
    encoded_text,
    open_cache,
)
from seq2seq.data.vocabulary.vocabulary import Vocabularies, check_tags
from seq2seq.evaluation.metrics import not_nfc_note
from seq2seq.evaluation.segmentation import segmentation_of
from seq2seq.model.seq2seq import count_parameters
from seq2seq.runs import checkpoint, layout, run_config, run_folder
from seq2seq.runs.checkpoint import LoadedRun, read_warm_start, start_note
from seq2seq.runs.training_state import OpenFolder, TrainingState, read_state, recorded_source
from seq2seq.runtime.console import counted, processor
from seq2seq.runtime.device import emulates, trim_memory
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import SINGLE_PROCESS, ProcessGroup
from seq2seq.text.joined_profile import HABITS
from seq2seq.training.session import (
    OpenRun,
    SessionData,
    TrainingSession,
    new_session,
    pending_habits,
    restore,
    session_data,
)
from seq2seq.training.threads import settle_threads

_EMULATED = (
    "warning: the run has bf16 products, which this processor only emulates, many times as slowly; "
    "resume it on one that has them, or start another with training.precision=float32"
)


def prepare(
    config: Config,
    device: torch.device,
    folder: OpenFolder = OpenFolder(None, None),  # noqa: B008 -- a tuple
    init_from: Path | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> tuple[TrainingSession, list[str]]:
    """Set up a run in its folder: a new one, or that of the folder's state to resume.

    A new run is initialised from the vocabulary and the best weights of the run in `init_from`, if
    given. Returns notes for the log, too. Raises UserError if data, config or state do not fit.
    """
    state = folder.state
    start = read_warm_start(init_from, config) if init_from is not None and state is None else None
    data, text, text_notes = _read(config, state, start)
    session = new_session(config, device, data, start, OpenRun(folder.lock, group))
    session.run.verify_lock()
    if state is None:
        run_folder.clear(config.run_dir)
        checkpoint.create_run(config.run_dir, config, data.vocabularies)
        session.save_state()  # from here on, a resumed run always finds a state
    repairs = [] if state is None else _reopen(session, state)
    threads = settle_threads(session)
    notes = [*_describe(session, text.blank), *threads, *text_notes, *repairs]
    notes += [] if start is None else [start_note(start, config)]
    if pending := pending_habits(session.data):
        habits = ", ".join(HABITS[name] for name in pending)
        notes.append(f"adopted once validation is no worse with it: {habits}")
    valid = data.valid
    suspicions = (
        same_sides(text.text, text.same),
        same_sides(usable(valid)[0]),
        trained_on(text.text, valid),
        not_nfc_note(f"{valid.source_name}, target", valid.tgt),
        segmentation_of(config.data.tgt_lang, [valid.tgt]).validation_note(),
    )
    trim_memory()
    return session, [*notes, *filter(None, suspicions)]


def _read(
    config: Config,
    state: TrainingState | None,
    start: LoadedRun | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> tuple[SessionData, CachedText, list[str]]:
    """Read the texts of a run, and notes; the main process checks them against the state's."""
    digests = {} if state is None else run_folder.recorded_digests(state.header)
    with open_cache(config.data.train, config.run_dir) as cache:
        text, notes = cached_text(config.data.train, cache, digests)
        notes += cache_notes(cache, config.run_dir)
        valid = valid_text(config.data, text.text)
        checksums = run_folder.text_checksums(text.checksum, checksum_of_text(valid))
        if state is not None and group.is_main:
            run_folder.check_texts(config.run_dir, state.header, checksums)
        vocabularies, vocabulary_notes = _vocabularies(config, text, state, start)
        encoded, encoding_notes = encoded_text(text, vocabularies, config.data.max_length)
        data = session_data(config, vocabularies, encoded.pairs, valid, state and state.limit)
    if start is not None:
        data = data.joined_with(start.limit, start.source)
    elif state is not None and (source := recorded_source(state)) is not None:
        data = data.joined_with(state.limit, source)
    data = data._replace(checksums=checksums | encoded.digests)
    return data, text, [*notes, *vocabulary_notes, *encoding_notes]


def _vocabularies(
    config: Config, text: CachedText, state: TrainingState | None, start: LoadedRun | None
) -> tuple[Vocabularies, list[str]]:
    """Return the vocabularies of the state or of the warm start, or new ones; and notes."""
    notes = list[str]()
    if state is not None:
        folder = config.run_dir / layout.VOCABULARY
        sampling = config.vocabulary.sampling
        vocabularies = run_config.recorded_vocabularies(state.path, state.header, folder, sampling)
    elif start is not None:
        vocabularies = start.vocabularies
    else:
        vocabularies, notes = cached_vocabularies(text, config.vocabulary)
    check_tags(vocabularies, config.data.tags)
    return vocabularies, notes


def _reopen(session: TrainingSession, state: TrainingState) -> list[str]:
    """Return to a saved state, the files of the run too; return notes on what was repaired."""
    folder = session.config.run_dir
    repairs = restore(session, state)
    with layout.writing(folder / layout.METRICS):
        problem = run_folder.restore_metrics(folder, session.progress)
    layout.remove_snapshots(folder, last_step=session.progress.step)
    run_folder.remove_parts(folder)
    checkpoint.update_config(folder, session.config)
    repairs += [problem] if problem else []
    if emulates(session.progress.precision, session.device):
        repairs.append(_EMULATED)
    return repairs


def join_run(config: Config, device: torch.device, group: ProcessGroup) -> TrainingSession:
    """Load the run that the main process set up; raises UserError if a file is not seen here."""
    state = read_state(config.run_dir)
    if state is None:
        text = f"run_dir: {config.run_dir} is not visible to all ranks."
        raise UserError(f"{text} Use a shared file system")
    for files in (*config.data.train, config.data.valid):
        for path in files.paths.values():
            if not path.is_file():
                raise UserError(f"{path}: every process reads this file; give a regular file")
    data, *_ = _read(config, state, group=group)
    session = new_session(config, device, data, run=OpenRun(group=group))
    restore(session, state)
    return session


def _describe(session: TrainingSession, train_blank: int) -> list[str]:
    """Describe data, model and device for the log."""
    config = session.config
    data = session.data
    progress = session.progress
    parameters = count_parameters(session.model)
    src, tgt = (len(vocabulary) for vocabulary in data.vocabularies[:2])
    threads = torch.get_num_threads()
    device = session.device
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    sizes = f"{src:,} tokens, joint" if data.vocabularies.joint else f"{src:,} and {tgt:,} tokens"
    notes = [
        f"{config.name}: {config.data.src_lang} -> {config.data.tgt_lang}, "
        f"{len(data.train):,} training pairs, {len(data.valid_pairs):,} validation pairs, "
        f"vocabulary of {sizes}",
        f"{config.model.decoder} decoder, {parameters:,} parameters, on {device} ({hardware}), "
        f"{counted(threads, 'thread')}, {progress.precision}",
    ]
    if data.train.links is not None and not config.training.losses.guided_alignment:
        notes.append("data.train.alignment has no effect: training.losses.guided_alignment is 0")
    too_long = f"with more than {config.data.max_length} tokens on a side"
    skipped = (train_blank, "with a blank side"), (data.train.too_long, too_long)
    for count, reason in skipped:
        if count:
            notes.append(f"skipped in training: {counted(count, 'pair')} {reason}")
    if valid_blank := usable(data.valid)[1]:
        notes.append(
            f"in validation: {counted(valid_blank, 'pair')} with a blank side, "
            "which the loss leaves out and BLEU counts, as seq2seq evaluate does"
        )
    if progress.step:
        notes.append(f"resumed at step {progress.step}, epoch {progress.epoch + 1}")
    return notes
