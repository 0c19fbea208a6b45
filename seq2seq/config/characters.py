"""Names of characters that a config cannot have, for messages."""

import unicodedata


def other_form(text: str, mark: str) -> str:
    """Return the name of the character that a text begins with if it is a form of a mark.

    Input methods of East Asian languages write such full-width forms.
    """
    is_form = not text[:1].isascii() and unicodedata.normalize("NFKC", text[:1]) == mark
    return name_with_article(text[0]) if is_form else ""


def name_with_article(character: str) -> str:
    """Return the name of a character with its article."""
    name = unicodedata.name(character, "TAB" if character == "\t" else "CONTROL CHARACTER")
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name.lower()}"
