"""`tvm.contrib.utils`: folders for files that are soon forgotten."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory


class TempDirectory:
    """A folder that is removed with the object."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self.temp_dir = self._folder.name
        self.path = self.temp_dir

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return str(Path(self.temp_dir) / name)

    def listdir(self) -> list[str]:
        """The names of the files in the folder."""
        return [p.name for p in Path(self.temp_dir).iterdir()]

    def remove(self) -> None:
        """Remove the folder now."""
        self._folder.cleanup()


def tempdir(custom_path: str | None = None) -> TempDirectory:
    """A new folder."""
    return TempDirectory()
