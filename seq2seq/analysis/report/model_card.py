"""Model card of a run: a README with the metadata that model hubs read."""

import yaml

from seq2seq.analysis.report.facts import CHOSEN_BY, RunFacts, name_of_text
from seq2seq.evaluation.metrics import METRICS
from seq2seq.runs.layout import MODEL_CARD, REPORT_MARK, is_own_report, writing
from seq2seq.runtime.console import counted
from seq2seq.runtime.files import atomic_write


def write_model_card(facts: RunFacts) -> str:
    """Write the model card into the run folder, unless a README of the user's is there.

    Returns a message that says which.

    Raises RunError if it cannot be written.
    """
    path = facts.run / MODEL_CARD
    if path.exists() and not is_own_report(path):
        return f"note: {path}: is kept, since seq2seq did not write it; there is no model card"
    with writing(path):
        atomic_write(path, model_card(facts).encode())
    return f"model card: {path}"


def model_card(facts: RunFacts) -> str:
    """Return the front matter and the text of the card."""
    metadata = yaml.safe_dump(_metadata(facts), sort_keys=False, allow_unicode=True, width=10_000)
    return f"---\n{metadata}---\n\n{REPORT_MARK}\n\n{_body(facts)}"


def _metadata(facts: RunFacts) -> dict[str, object]:
    data, scored = facts.config.data, facts.scored
    tree: dict[str, object] = {
        "language": list(dict.fromkeys((data.src_lang, data.tgt_lang))),
        "library_name": "seq2seq-attention",
        "pipeline_tag": "translation",
        "tags": ["translation", "seq2seq", "lstm", f"decoder-{facts.config.model.decoder}"],
    }
    if scored is None:
        return tree
    values = [
        {
            "type": key,
            "name": METRICS[key].name,
            "value": round(value.score, 2),
            "args": {"signature": value.signature},
        }
        for key, value in scored.scores.items()
    ]
    tree["metrics"] = list(scored.scores)
    text = name_of_text(facts.config, scored.split)
    result = {
        "task": {"type": "translation", "name": f"{data.src_lang} to {data.tgt_lang}"},
        "dataset": {"type": "text", "name": text, "split": scored.split},
        "metrics": values,
    }
    tree["model-index"] = [{"name": facts.config.name, "results": [result]}]
    return tree


def _body(facts: RunFacts) -> str:
    data, model = facts.config.data, facts.config.model
    lines = [
        f"# {_plain(facts.config.name)}",
        "",
        f"An attention-based recurrent model that translates {_plain(data.src_lang)} to "
        f"{_plain(data.tgt_lang)}: decoder {model.decoder}, {facts.parameters:,} parameters, "
        "trained with seq2seq (the distribution `seq2seq-attention`, not PyPI's `seq2seq`).",
        "",
        '    seq2seq translate -m FOLDER "A sentence."    # the folder of this file',
        "",
        "## Training text",
        "",
        *(
            f"- {_plain(text.name)}: {_count(text.pairs)}{_plain(text.files)}"
            for text in facts.texts
        ),
        "",
    ]
    if facts.scored is not None:
        lines += [
            f"## Scores on the {facts.scored.split} text",
            "",
            *([CHOSEN_BY, ""] if facts.scored.split == "valid" else []),
            "| metric | score | 95% interval | signature |",
            "| --- | --- | --- | --- |",
            *(
                f"| {METRICS[key].name} | {value.score:.1f} | {_interval(value.ci)} | "
                f"{_plain(value.signature)} |"
                for key, value in facts.scored.scores.items()
            ),
            "",
        ]
    return "\n".join(lines)


def _count(pairs: int) -> str:
    return f"{counted(pairs, 'pair')}, " if pairs else ""


def _interval(ci: tuple[float, float] | None) -> str:
    return "-" if ci is None else f"{ci[0]:.1f} to {ci[1]:.1f}"


def _plain(text: str) -> str:
    """Return a name as one line of Markdown, with the characters escaped that have a meaning."""
    line = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|&!" else sign for sign in line)
