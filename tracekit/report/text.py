"""Text of a trace made safe to show and to embed.

Names come from files that anyone may have written. They reach the page only as JSON inside a script element of type
``application/json`` and are shown with ``textContent``; this module makes sure that they cannot end that element, and
that invisible characters (terminal escapes, direction overrides) are seen rather than obeyed.
"""

from __future__ import annotations

import json
import re

LONGEST = 2000
"""Characters of one text that are kept; longer ones end in an ellipsis."""

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """``text`` with control characters and direction overrides replaced by visible signs.

    ASCII controls become their pictures (escape is ``␛``), everything else unseen becomes ``⟨U+202E⟩``.
    Tab and newline stay.
    """
    shown = _UNSEEN.sub(_sign, text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _sign(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return f"⟨U+{code:04X}⟩"


def script_json(value: object) -> str:
    """``value`` as JSON that can stand inside any HTML script element.

    ``<``, ``>``, ``&`` and the line separators are written as escapes, so that neither ``</script>`` nor ``<!--``
    can occur. Not-a-number and infinity become null.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _plain(value: object) -> object:
    """``value`` with every text made visible and floats that JSON lacks as null."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {visible(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
