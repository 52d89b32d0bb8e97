"""Keep secrets out of manifests: command lines and texts, with the values that may be secret as ``***``.

The rule: the value of an option, variable or field whose name suggests a secret is hidden, and URLs lose user names,
passwords and queries. A secret under a name that does not suggest one (``-p X``) is not recognised.
"""

from __future__ import annotations

import re

HIDDEN = "***"
_SECRET_NAME = (
    r"(?:token(?!i[sz])|secret|passw|passphrase|pwd|credential|bearer|cookie|auth(?!or)|authoriz"
    r"|(?:api|access|private|secret|account|ssh|signing|encryption)[-_]?key|(?<![a-z])(?:key|pass)(?![-_a-z]))"
)
_SECRET = re.compile(_SECRET_NAME, re.I)
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^\s/@\"']*@)?(?P<rest>[^\s?#\"']*)(?P<query>[?#][^\s\"']*)?", re.I
)
_FIELD = re.compile(
    rf"(?P<name>[\w.-]*{_SECRET_NAME}[\w.-]*[\"']?\s*[:=]\s*)"
    r"(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)",
    re.I,
)
_SCHEME = re.compile(r"\b(?P<scheme>bearer|basic)\s+[^\s\"',;]+", re.I)
_WORD = re.compile(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*'|[\"'])+")


def redacted_command(argv: list[str]) -> list[str]:
    """The command line without secrets.

    An option whose name suggests a secret hides what follows it, unless that begins with two dashes.
    """
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if hide_next and not argument.startswith("--"):
            shown.append(HIDDEN)
            hide_next = False
        elif equals and _is_plain_name(name) and _SECRET.search(name):
            shown.append(f"{name}={HIDDEN}")
            hide_next = False
        else:
            shown.append(_without_fields(argument))
            hide_next = is_option and not equals and bool(_SECRET.search(name)) and _is_plain_name(name)
    return shown


def _is_plain_name(name: str) -> bool:
    return re.fullmatch(r"[\w.+-]+", name) is not None


def redacted_text(text: str) -> str:
    """A text that may hold options, such as ``NEURON_CC_FLAGS``, or a URL, without secrets."""
    words = list(_WORD.finditer(text))
    shown = redacted_command([word[0] for word in words])
    for word, replacement in reversed(list(zip(words, shown, strict=True))):
        text = text[: word.start()] + replacement + text[word.end() :]
    return _without_fields(text)


def _without_fields(text: str) -> str:
    text = _URL.sub(lambda m: m["scheme"] + m["rest"] + (f"?{HIDDEN}" if m["query"] else ""), text)
    text = _FIELD.sub(lambda m: m["name"] + HIDDEN, text)
    return _SCHEME.sub(lambda m: f"{m['scheme']} {HIDDEN}", text)
