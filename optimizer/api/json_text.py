"""Turns a document into the JSON text that the command line prints and results of the Python API give."""

import json
from collections.abc import Mapping
from typing import Any


def json_text(document: Mapping[str, Any]) -> str:
    """A JSON document as it is printed."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
