"""Plot translation quality against search speed, one mark per model.

    python scripts/plot_trade_off.py docs/results/trade-off.json docs/images/trade-off.png

The JSON object has a list of `models`, each with a `name`, its `width` in units and its int8
`megabytes` (null for other tools), its `bleu` and its output `tokens` per second.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.runtime.figures import FAMILIES, save
from seq2seq.runtime.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, THEIRS = "#0072b2", "#d55e00"  # distinct for the colour-blind (Okabe and Ito)
WIDTH, HEIGHT = 6.4, 3.8  # inches
ROOM = 1.25  # factor of the highest speed, and
BLEU_ROOM = 0.8  # points of BLEU, around the marks, for their labels


def main() -> None:
    """Read the models and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="JSON file")
    parser.add_argument("figure", type=Path, help=".png, .svg or .pdf")
    options = parser.parse_args()
    models = json.loads(options.models.read_text(encoding="utf-8"))["models"]
    content, _ = save(draw(models), options.figure.suffix)
    atomic_write(options.figure, content)


def draw(models: list[dict[str, Any]]) -> "Figure":
    """Draw a mark with a label for each model: ours above its mark, others below."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.family": [FAMILIES[0], "sans-serif"], "font.size": 9}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        for model in models:
            ours, mark = model["width"] is not None, (model["tokens"], model["bleu"])
            colour, marker = (OURS, "o") if ours else (THEIRS, "D")
            axes.plot(*mark, linestyle="none", color=colour, marker=marker)
            axes.annotate(
                _label(model),
                mark,
                xytext=(0, 7 if ours else -7),
                textcoords="offset points",
                ha="center",
                va="bottom" if ours else "top",
                fontsize=8,
            )
        speeds, scores = ([model[key] for model in models] for key in ("tokens", "bleu"))
        axes.set_xlim(0, max(speeds) * ROOM)
        axes.set_ylim(min(scores) - BLEU_ROOM, max(scores) + BLEU_ROOM)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set(xlabel="output tokens per second, beam 5", ylabel="BLEU")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _label(model: dict[str, Any]) -> str:
    sizes = [f"{model['width']} units"] if model["width"] is not None else []
    sizes += [f"{model['megabytes']:.1f} MB"] if model["megabytes"] is not None else []
    return "\n".join([model["name"], ", ".join(sizes)]).strip()


if __name__ == "__main__":
    main()
