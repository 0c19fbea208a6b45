"""LaTeX formulas of a page as MathML, which browsers display without a script or a font."""

import re

_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"\$(\S|\S[^$]*?\S)\$")
_FUNCTION = "<mi>(?:exp|log|tanh)</mi>"  # a thin space is between it and a variable
_BEFORE = re.compile(rf"(?<=</mi>|</mn>)(?={_FUNCTION})|(?<=</msub>|</msup>)(?={_FUNCTION})")
_AFTER = re.compile(rf"(?<!<msub>|<msup>){_FUNCTION}(?=<m[ins])")
_SPACE = r'\g<0><mspace width="0.17em"/>'


def render_maths(markdown: str) -> str:
    """Return the page with `$...$` and `$$...$$` outside of code replaced by MathML."""
    parts = _CODE.split(markdown)
    parts[::2] = [_INLINE.sub(_inline, _BLOCK.sub(_block, part)) for part in parts[::2]]
    return "".join(parts)


def _block(formula: re.Match[str]) -> str:
    """Return the equations of a line side by side, or below each other on a narrow screen."""
    equations = re.split(r"(?:\\qquad)+", formula[1])
    return f'<div class="formula">{"".join(_mathml(part, "block") for part in equations)}</div>'


def _inline(formula: re.Match[str]) -> str:
    # A <math> element at the start of a line would end the paragraph.
    return f'<span class="formula">{_mathml(formula[1], "inline")}</span>'


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert  # in the extra `docs`

    element = str(convert(" ".join(formula.split()), display=display))
    return _AFTER.sub(_SPACE, _BEFORE.sub(_SPACE, element))
