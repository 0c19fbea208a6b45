"""Draw the diagrams of docs/: encoder and attention, two wirings, beam search, BLEU.

    python scripts/draw_diagrams.py

Writes SVG files into docs/images, which follow a dark theme; the site has them inline. The
figures of BLEU are the first tables of docs/results/attention.md and recipes.md.
"""

import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
IMAGES = DOCS / "images"
STYLE = """
.diagram { --ink: #1c1e21; --soft: #5c636e; --fill: #eef2f9; --accent: #2664cd; --pick: #d9e5fb;
  font: 13px system-ui, "Noto Sans", sans-serif; color-scheme: light dark }
@media (prefers-color-scheme: dark) { .diagram { --ink: #e6e7e9; --soft: #a3a9b3; --fill: #23272e;
  --accent: #7fabf5; --pick: #223a63 } }
.diagram text { fill: var(--ink) } .diagram .soft { fill: var(--soft); font-size: 11.5px }
.diagram .title { font-weight: 600; font-size: 14px }
.diagram rect, .diagram circle { fill: var(--fill); stroke: var(--soft) }
.diagram .pick { fill: var(--pick); stroke: var(--accent) }
.diagram .bar { fill: var(--accent); stroke: none }
.diagram .mark { fill: var(--accent); stroke: none }
.diagram path { fill: none; stroke: var(--soft); stroke-width: 1.3 }
.diagram .strong { stroke: var(--accent); stroke-width: 2 }
.diagram .grid { stroke-width: .5; opacity: .6 }
.diagram .dashed { stroke-dasharray: 4 3 }
.diagram marker path { fill: var(--soft); stroke: none }
"""
ARROW = (
    '<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker>'
)


class Drawing:
    """An SVG file under construction, in pixels from the upper left."""

    def __init__(self, name: str, width: int, height: int, title: str) -> None:
        self.name = name
        self.width = width
        self.height = height
        self._parts = [f"<title>{escape(title)}</title><style>{STYLE}</style>"]
        self._parts.append(f"<defs>{ARROW.format(name=f'arrow-{name}')}</defs>")

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        """Write a text, with subscripts as in `h_{t-1}`."""
        parts = re.split(r"_\{([^}]*)\}", escape(text))
        spans = [
            f'<tspan dy="4" font-size="75%">{part}</tspan><tspan dy="-4">&#8203;</tspan>'
            if number % 2
            else part
            for number, part in enumerate(parts)
        ]
        kind = f' class="{kind}"' if kind else ""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f"<text{kind} {place}>{''.join(spans)}</text>")

    def box(
        self, corner: tuple[float, float], size: tuple[float, float], text: str, kind: str = ""
    ) -> None:
        """Draw a box with a text."""
        (x, y), (width, height) = corner, size
        kind = f' class="{kind}"' if kind else ""
        self._parts.append(
            f'<rect{kind} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
        )
        self.text(x + width / 2, y + height / 2 + 4.5, text)

    def line(
        self, points: Sequence[tuple[float, float]], kind: str = "", arrow: bool = True
    ) -> None:
        """Draw a line through points, with an arrow at its end."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        end = f' marker-end="url(#arrow-{self.name})"' if arrow else ""
        kind = f' class="{kind}"' if kind else ""
        self._parts.append(f'<path{kind} d="{path}"{end}/>')

    def bar(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a bar from its upper left corner."""
        self._parts.append(
            f'<rect class="bar" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
        )

    def mark(self, x: float, y: float) -> None:
        """Draw a mark of a chart."""
        self._parts.append(f'<circle class="mark" cx="{x:g}" cy="{y:g}" r="3"/>')

    def write(self) -> None:
        """Write the file."""
        head = (
            f'<svg class="diagram" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {self.width} {self.height}">'
        )
        text = head + "\n".join(self._parts) + "</svg>\n"
        (IMAGES / f"{self.name}.svg").write_text(text, encoding="utf-8")


def encoder() -> None:
    """Draw the encoder of a sentence and one step of attention."""
    title = "Encoder and attention: the context is a weighted sum of the encoder's outputs"
    drawing = Drawing("encoder-attention", 700, 340, title)
    weights = {"The": 0.03, "red": 0.88, "car": 0.06, "is": 0.02, "old.": 0.01}
    for number, (word, weight) in enumerate(weights.items()):
        x = 60 + 82 * number
        drawing.text(x, 318, word)
        drawing.line([(x, 302), (x, 286)])
        drawing.box((x - 28, 252), (56, 32), f"h_{{{number + 1}}}", "pick" if weight > 0.5 else "")
        if number:
            drawing.line([(x - 54, 262), (x - 29, 262)])
            drawing.line([(x - 28, 275), (x - 53, 275)])
        drawing.bar(x - 9, 214 - 50 * weight, 18, 50 * weight + 1)
        drawing.text(x, 230, f"{weight:.2f}", "soft")
        strong = "strong" if weight > 0.5 else ""
        drawing.line([(x, 208 - 50 * weight), (232, 118)], strong)
    drawing.text(478, 273, "encoder: an LSTM in both directions", "soft", "start")
    drawing.text(478, 318, "source", "soft", "start")
    drawing.text(478, 222, "weights a_{t}: softmax of the scores", "soft", "start")
    drawing.box((203, 84), (60, 32), "c_{t}", "pick")
    drawing.text(195, 104, "context: sum of weight times h", "soft", "end")
    drawing.line([(264, 100), (388, 100)], "strong")
    drawing.box((390, 84), (120, 32), "decoder", "pick")
    drawing.line([(450, 84), (450, 52)])
    drawing.text(450, 42, "rouge")
    drawing.text(478, 42, "the next word of “La voiture …”", "soft", "start")
    drawing.line([(450, 117), (450, 190), (404, 190)], "dashed")
    drawing.text(462, 160, "query q_{t}: scored with every h", "soft", "start")
    drawing.write()


def wirings() -> None:
    """Draw a step of Bahdanau's and of Luong's decoder side by side."""
    title = "Bahdanau's decoder attends and then steps; Luong's steps and then attends"
    drawing = Drawing("wirings", 760, 350, title)
    drawing.text(20, 24, "Bahdanau et al. (2015): attend, then step", "title", "start")
    drawing.box((110, 300), (220, 34), "memory h_{1} … h_{S}")
    drawing.line([(190, 300), (190, 260)])
    drawing.box((130, 224), (120, 34), "1. attend", "pick")
    drawing.box((20, 146), (70, 34), "s_{t-1}")
    drawing.line([(55, 181), (55, 241), (128, 241)])
    drawing.text(90, 235, "query", "soft")
    drawing.line([(91, 163), (168, 163)])
    drawing.box((170, 146), (100, 34), "2. LSTM", "pick")
    drawing.line([(215, 223), (215, 182)], "strong")
    drawing.text(228, 206, "c_{t}", "", "start")
    drawing.box((292, 210), (60, 34), "y_{t-1}")
    drawing.line([(300, 209), (268, 182)])
    drawing.line([(271, 163), (290, 163)])
    drawing.box((292, 146), (60, 34), "s_{t}")
    drawing.line([(318, 145), (268, 105)])
    drawing.line([(150, 223), (150, 105)], "strong")
    drawing.box((120, 70), (170, 34), "3. predict y_{t}", "pick")
    drawing.text(296, 92, "from s_{t}, c_{t}, y_{t-1}", "soft", "start")
    left = 400
    drawing.text(left, 24, "Luong et al. (2015): step, then attend", "title", "start")
    drawing.box((left + 130, 300), (220, 34), "memory h_{1} … h_{S}")
    drawing.box((left, 228), (60, 34), "h_{t-1}")
    drawing.box((left, 286), (104, 34), "y_{t-1}, h̃_{t-1}")
    drawing.line([(left + 61, 245), (left + 98, 245)])
    drawing.line([(left + 104, 296), (left + 130, 264)])
    drawing.box((left + 100, 228), (90, 34), "1. LSTM", "pick")
    drawing.line([(left + 191, 245), (left + 208, 245)])
    drawing.box((left + 210, 228), (46, 34), "h_{t}")
    drawing.line([(left + 250, 227), (left + 272, 182)])
    drawing.text(left + 268, 212, "query", "soft", "start")
    drawing.line([(left + 320, 300), (left + 320, 182)])
    drawing.box((left + 250, 146), (100, 34), "2. attend", "pick")
    drawing.line([(left + 249, 163), (left + 206, 163)], "strong")
    drawing.text(left + 228, 156, "c_{t}")
    drawing.line([(left + 226, 227), (left + 176, 182)])
    drawing.box((left + 110, 146), (94, 34), "h̃_{t}", "pick")
    drawing.line([(left + 157, 145), (left + 157, 105)], "strong")
    drawing.box((left + 80, 70), (154, 34), "3. predict y_{t}", "pick")
    drawing.line([(left + 109, 163), (left + 40, 163), (left + 40, 192)], "dashed")
    drawing.text(left, 208, "input feeding: to step t+1", "soft", "start")
    drawing.write()


def beam_search() -> None:
    """Draw a beam of two hypotheses over three steps."""
    drawing = Drawing("beam-search", 700, 280, "Beam search with two hypotheses")
    columns = [20, 130, 300, 500]
    steps = [
        [("", "<s>", 0.0, True)],
        [("<s>", "La", -0.2, True), ("<s>", "Le", -1.9, True), ("<s>", "Une", -3.1, False)],
        [
            ("La", "La voiture", -0.3, True),
            ("La", "La voitures", -3.0, False),
            ("Le", "Le véhicule", -2.4, True),
            ("Le", "Le wagon", -3.2, False),
        ],
        [
            ("La voiture", "La voiture rouge", -0.4, True),
            ("La voiture", "La voiture est", -2.7, True),
            ("Le véhicule", "Le véhicule rouge", -2.9, False),
            ("Le véhicule", "Le véhicule est", -4.6, False),
        ],
    ]
    ends: dict[str, tuple[float, float]] = {}
    for column, (x, hypotheses) in enumerate(zip(columns, steps, strict=True)):
        width = 66 if column < 2 else 138
        for row, (parent, text, score, is_kept) in enumerate(hypotheses):
            y = 120 if not column else 62 + 52 * row
            drawing.box((x, y - 16), (width, 32), text, "pick" if is_kept else "")
            if column:
                drawing.text(x + width / 2, y + 29, f"{score:.1f}", "soft")
                kind = "strong" if is_kept else "dashed"
                drawing.line([ends[parent], (x - 2, y)], kind)
            ends[text] = x + width + 1, y
        if column:
            drawing.text(x + width / 2, 24, f"step {column}", "title")
    note = (
        "Blue: the two best hypotheses of a step, which are continued. Numbers: log-probabilities."
    )
    drawing.text(20, 268, note, "soft", "start")
    drawing.write()


def by_length() -> None:
    """Draw BLEU by source length, as figure 2 of Bahdanau et al. (2015)."""
    first, *rows = table_of("attention.md")
    head = first[1:8]
    curves = {row[0]: [float(cell) for cell in row[1:8]] for row in rows}
    drawing = Drawing("by-length", 640, 320, "BLEU by the length of the source sentence")
    left, top, width, height = 50, 40, 480, 220
    drawing.text(
        left, 20, "BLEU by source length, in words; training had at most 15", "title", "start"
    )
    for score in range(0, 101, 20):
        y = top + height * (1 - score / 100)
        drawing.line([(left, y), (left + width - 34, y)], "grid", arrow=False)
        drawing.text(left - 8, y + 4, str(score), "soft", "end")
    xs = [left + width * (n + 0.5) / len(head) for n in range(len(head))]
    for x, label in zip(xs, head, strict=True):
        drawing.text(x, top + height + 20, label, "soft")
    edge = (xs[2] + xs[3]) / 2
    drawing.line([(edge, top), (edge, top + height)], "dashed", arrow=False)
    drawing.text(edge + 6, top + height - 8, "longer than any training sentence", "soft", "start")
    for (name, scores), kind in zip(curves.items(), ("", "strong", "strong dashed"), strict=True):
        points = [
            (x, top + height * (1 - score / 100)) for x, score in zip(xs, scores, strict=True)
        ]
        drawing.line(points, kind, arrow=False)
        for point in points:
            drawing.mark(*point)
        label = {"none": "without attention"}.get(name, name)
        drawing.text(points[-1][0] + 10, points[-1][1] + 4, label, "", "start")
    drawing.text(left + width / 2, top + height + 48, "means of three seeds", "soft")
    drawing.write()


def recipes() -> None:
    """Draw the BLEU of the recipes, the first table of docs/results/recipes.md, as bars."""
    rows = table_of("recipes.md")[1:]
    drawing = Drawing("recipes", 640, 34 * len(rows) + 34, "BLEU of the recipes")
    for number, (name, score, *_) in enumerate(rows):
        y = 14 + 34 * number
        drawing.text(330, y + 15, name, "", "end")
        drawing.bar(340, y, 5.4 * float(score), 22)
        drawing.text(348 + 5.4 * float(score), y + 15, score, "", "start")
    drawing.text(340, 34 * len(rows) + 24, "BLEU, from 0", "soft", "start")
    drawing.write()


def table_of(page: str) -> list[list[str]]:
    """Return the cells of the first table of a page of results, without the line below its head."""
    text = (DOCS / "results" / page).read_text(encoding="utf-8")
    table = text[text.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in (table[0], *table[2:])]


def main() -> int:
    """Draw all."""
    for draw in (encoder, wirings, beam_search, by_length, recipes):
        draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
