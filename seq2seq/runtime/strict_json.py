"""Strict JSON in which only a line feed ends a line."""

import json
import re
from typing import Any

from seq2seq.runtime.errors import RunError

_ESCAPED_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # JSON escapes others


def json_text(value: Any, indent: int | None = None) -> str:
    """Format a value as strict JSON in which a line feed alone can end a line, for any reader.

    U+0085, U+2028 and U+2029, at which others split, are escaped, as are other C1 controls and lone
    surrogates, which UTF-8 lacks. Raises RunError for a number that JSON lacks (nan, inf).
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError as error:
        raise RunError(f"JSON cannot hold a number that is not finite ({error})") from None
    return _ESCAPED_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
