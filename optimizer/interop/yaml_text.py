"""Turns plain values into YAML that keeps the order of keys and the type of every string."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def yaml_documents(documents: Sequence[Mapping[str, Any]], head: Iterable[str]) -> str:
    """The documents behind comments; strings that YAML would read as something else are quoted by its own writer."""
    import yaml  # an exporter's library, not needed to plan: start-up time

    class Dumper(yaml.SafeDumper):
        """Writes every list indented and repeats values instead of anchoring them."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value and value.isascii() else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    comments = "".join(f"# {line}\n" for line in head)
    body = "---\n".join(
        yaml.dump(dict(document), Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
        for document in documents
    )
    return comments + body
