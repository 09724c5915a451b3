"""Turns pages into ones whose Python examples show what they print: `python tests/python_examples.py` rewrites them.

An example is a block ```` ```pycon ```` of lines as the interpreter shows them; the blocks of a page share their names.
"""

import contextlib
import doctest
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "python.md")
NOW: Final = "2026-11-30T12:00:00+00:00"
_BLOCK: Final = re.compile(r"```pycon\n(?P<lines>.*?)```", re.DOTALL)


def examples(text: str) -> list[doctest.Example]:
    """The statements of all blocks of a page, with what the page says that they print."""
    parse = doctest.DocTestParser().get_examples
    return [example for block in _BLOCK.finditer(text) for example in parse(block["lines"])]


def printed(examples: list[doctest.Example]) -> Iterator[str]:
    """What each statement prints, run one after the other with the same names."""
    names: dict[str, Any] = {}
    for example in examples:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(example.source, "<page>", "single"), names)  # noqa: S102 - the page is ours
        yield output.getvalue()


def with_current_output(text: str, run: Callable[[list[doctest.Example]], Iterator[str]] = printed) -> str:
    """The page's text with what its statements print now."""
    outputs = run(examples(text))

    def renewed(block: re.Match[str]) -> str:
        lines = []
        for example in doctest.DocTestParser().get_examples(block["lines"]):
            first, *others = example.source.splitlines()
            lines += [f">>> {first}", *(f"... {line}".rstrip() for line in others), *next(outputs).splitlines()]
        return "```pycon\n" + "\n".join(lines) + "\n```"

    return _BLOCK.sub(renewed, text)


def main() -> None:
    with tempfile.TemporaryDirectory() as empty:
        os.environ |= {"COSTOPT_NOW": NOW, "COSTOPT_CACHE_URL": f"sqlite:///{empty}/none.db", "XDG_CACHE_HOME": empty}
        for page in PAGES:
            page.write_text(with_current_output(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
