"""Turns the replies of a fetch into files that can be replayed: secrets scrubbed, headers allow-listed."""

from pathlib import Path


class Recorder:
    """Writes what one `costopt refresh --record DIR` receives under `DIR/<provider>/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
