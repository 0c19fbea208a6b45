"""A comparison for reading, and as JSON."""

from statistics import mean
from typing import Any

from seq2seq.analysis.compare.compare import Outcome, Result, Scored, bleus
from seq2seq.analysis.compare.length_buckets import Bucket
from seq2seq.cli.tables import aligned
from seq2seq.evaluation.bootstrap import deviation
from seq2seq.evaluation.metrics import RESAMPLES

_SPLIT_NOTES = {
    "valid": "valid is what the best weights were chosen by, and what to choose a variant by; "
    "--split test then scores the choice",
    "test": "test is for the final score; a choice made by it makes it too good",
}


def as_text(result: Result) -> str:
    """A table of variants, one of source lengths, and what their figures mean."""
    parts = [_title(result), _variants(result), _lengths(result), _legend(result)]
    return "\n\n".join(part for part in parts if part)


def _title(result: Result) -> str:
    task, seeds = result.task, result.plan.seeds
    beam = "beam of the config" if task.beam is None else f"beam {task.beam}"
    return (
        f"{task.split}: {len(task.text):,} sentences, seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))}, {beam}, {'lower-cased' if task.lowercase else 'cased'}"
    )


def _variants(result: Result) -> str:
    head = ("variant", "BLEU", "sd", "chrF2", "ensemble", "difference", "sd", "p")
    rows = [(*head, "parameters", "tokens/s", "minutes")]
    for each in result.outcomes:
        scores, costs = bleus(each.runs), [run.cost for run in each.runs]
        speeds = [cost.tokens_per_second for cost in costs if cost.tokens_per_second is not None]
        tested = each.difference
        rows.append(
            (
                each.variant.name,
                f"{mean(scores):.1f}",
                _number(deviation(scores), ".2f"),
                f"{mean(run.scored.scores.chrf.score for run in each.runs):.1f}",
                _number(each.ensemble and each.ensemble.scores.bleu.score, ".1f"),
                _number(tested and tested.mean, "+.1f"),
                _number(tested and tested.deviation, ".2f"),
                _number(tested and tested.p_value, ".3f"),
                f"{each.parameters:,}",
                _number(mean(speeds) if speeds else None, ",.0f"),
                f"{mean(cost.minutes for cost in costs):.1f}",
            )
        )
    return aligned(rows)


def _lengths(result: Result) -> str:
    if not result.buckets:
        return ""
    rows = [
        ("words of the source", *map(label, result.buckets)),
        ("sentences", *(f"{len(bucket.rows):,}" for bucket in result.buckets)),
    ]
    for each in result.outcomes:
        rows.append((each.variant.name, *(f"{score:.1f}" for score in each.by_length)))
    return aligned(rows)


def label(bucket: Bucket) -> str:
    """A bucket's lengths, with a star where no source in training is as long."""
    span = f"{bucket.first}-{bucket.last}" if bucket.first < bucket.last else f"{bucket.first}"
    return f"{span}*" if bucket.beyond else span


def _legend(result: Result) -> str:
    plan, scores = result.plan, result.outcomes[0].runs[0].scored.scores
    lines = [
        f"BLEU and chrF2 are means over seeds, sd their sample standard deviation; {_files(result)}"
    ]
    if len(plan.variants) > 1:
        lines.append(
            f"difference is that to {plan.variants[0].name}, p whether other sentences might turn "
            f"it round: paired bootstrap of the means, {RESAMPLES:,} resamples, two-sided"
        )
        lines.append("p knows nothing of other seeds: a difference within its sd may be their luck")
    if any(bucket.beyond for bucket in result.buckets):
        lines.append(f"* more words than any source learnt from ({result.task.longest})")
    for variant in plan.variants:
        if (own := plan.trained_as(variant).name) != variant.name:
            lines.append(f"{variant.name} shares the training of {own}: only decoding differs")
    lines.append(_SPLIT_NOTES[result.task.split])
    lines.append(f"BLEU {scores.bleu.signature}; chrF2 {scores.chrf.signature}")
    return "\n".join(lines)


def _files(result: Result) -> str:
    return f"translations: {result.plan.folder}/*.{result.task.split}.hyp"


def as_json(result: Result) -> dict[str, Any]:
    """All of it for `json.dumps`."""
    plan, task = result.plan, result.task
    return {
        "split": task.split,
        "files": task.text.source_name,
        "sentences": len(task.text),
        "seeds": list(plan.seeds),
        "beam": task.beam,
        "lowercase": task.lowercase,
        "longest_source_in_training": task.longest,
        "variants": [_outcome(result, each) for each in result.outcomes],
        "lengths": [
            {
                "words": [bucket.first, bucket.last],
                "sentences": len(bucket.rows),
                "beyond_training": bucket.beyond,
                "bleu": {each.variant.name: each.by_length[i] for each in result.outcomes},
            }
            for i, bucket in enumerate(result.buckets)
        ],
    }


def _outcome(result: Result, outcome: Outcome) -> dict[str, Any]:
    scores = bleus(outcome.runs)
    tested = outcome.difference
    return {
        "name": outcome.variant.name,
        "trained_as": result.plan.trained_as(outcome.variant).name,
        "config": outcome.variant.config.model_dump(
            mode="json", exclude={"name", "run_dir", "seed"}
        ),
        "bleu_mean": mean(scores),
        "bleu_deviation": deviation(scores),
        "chrf_mean": mean(run.scored.scores.chrf.score for run in outcome.runs),
        "difference": tested._asdict() if tested is not None else None,
        "parameters": outcome.parameters,
        "ensemble": None if outcome.ensemble is None else _scored(outcome.ensemble),
        "runs": [
            {
                "seed": run.seed,
                "folder": run.folder.as_posix(),
                **run.cost._asdict(),
                **_scored(run.scored),
                "curve": run.curve,
            }
            for run in outcome.runs
        ],
    }


def _scored(scored: Scored) -> dict[str, Any]:
    scores = {key: each._asdict() for key, each in scored.scores._asdict().items()}
    return {"translations": scored.file.as_posix(), **scores}


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
