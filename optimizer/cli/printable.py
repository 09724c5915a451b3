"""Turns text that may come from somebody's file into text that no terminal takes for a command."""

import re
from typing import Final

_COMMANDS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters but tab and line feed, and those that turn the direction of writing."""


def printable(text: str) -> str:
    """The text with control characters written out as escapes, like \\x1b."""
    return _COMMANDS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
