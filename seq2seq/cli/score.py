"""Files of sentences and of their translations to a score a line."""

from collections.abc import Callable
from pathlib import Path

from seq2seq.cli.input_lines import InputReport
from seq2seq.cli.output import rendered_score
from seq2seq.cli.streams import BATCH_LINES, open_input, open_output
from seq2seq.inference.scoring import perplexity, score_lines
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError


def score_files(
    src: Path | None,
    tgt: Path,
    output: Path | None,
    json_lines: bool,
    load: Callable[[], Translator],
) -> str:
    """Write a line for each pair of lines of `src` (None: stdin) and `tgt`; returns a summary.

    Raises UserError, before the model is loaded, where the numbers of lines differ.
    """
    src_report, src_texts = _read(src)
    report, tgt_texts = _read(tgt)
    if len(src_texts) != len(tgt_texts):
        raise UserError(
            f"{src or 'standard input'} has {len(src_texts)} lines but {tgt} has "
            f"{len(tgt_texts)}: line N of one must belong to line N of the other"
        )
    translator = load()
    total, pieces = 0.0, 0
    with open_output(output) as file:
        for start in range(0, len(src_texts), BATCH_LINES):
            rows = slice(start, start + BATCH_LINES)
            found = score_lines(translator, src_texts[rows], tgt_texts[rows])
            file.write("".join(rendered_score(each, json_lines) for each in found))
            file.flush()
            report.note_impossible(start + 1, [each.possible for each in found])
            total += sum(each.log_prob for each in found if each.possible)
            pieces += sum(len(each.log_probs) for each in found)
    src_report.tell()
    report.tell()
    return f"perplexity {perplexity(total, pieces):.2f} over {pieces:,} pieces, END counted"


def _read(path: Path | None) -> tuple[InputReport, list[str]]:
    report = InputReport(path)
    with open_input(path) as lines:
        return report, report.decode(1, list(lines))
