"""LaTeX formulas of a page as MathML, which browsers display without a script or a font."""

import re

_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"\$(\S|\S[^$]*?\S)\$")


def render_maths(markdown: str) -> str:
    """Return the page with `$...$` and `$$...$$` outside of code replaced by MathML."""
    parts = _CODE.split(markdown)
    parts[::2] = [_INLINE.sub(_inline, _BLOCK.sub(_block, part)) for part in parts[::2]]
    return "".join(parts)


def _block(formula: re.Match[str]) -> str:
    return f'<div class="formula">{_mathml(formula[1], "block")}</div>'


def _inline(formula: re.Match[str]) -> str:
    # A <math> element at the start of a line would end the paragraph.
    return f'<span class="formula">{_mathml(formula[1], "inline")}</span>'


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert  # in the extra `docs`

    return str(convert(" ".join(formula.split()), display=display))
