"""Checkpoints of the training demo, in a directory that can be taken from it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


class Checkpoints:
    """
    Saves with Orbax, always over the checkpoint before.

    Only a program that saves makes one: importing Orbax takes seconds.
    """

    def __init__(self) -> None:
        import orbax.checkpoint  # noqa: PLC0415 - not by every program

        self._orbax: Any = orbax.checkpoint
        self._saver = orbax.checkpoint.Checkpointer(
            orbax.checkpoint.StandardCheckpointHandler()
        )
        self._directory = TemporaryDirectory(prefix="jaxmon-demo-")
        self._home = Path(self._directory.name) / "checkpoints"
        self._gone = self._home.with_name("gone")
        self._home.mkdir()

    def save(self, leaves: list[Any], *, writable: bool) -> None:
        """
        Save *leaves*.

        Args:
            leaves: arrays.
            writable: whether the directory is there; otherwise a file is in its place.

        Raises:
            OSError: it is not.
        """
        if writable and self._gone.exists():
            self._home.unlink()
            self._gone.rename(self._home)
        elif not writable and not self._gone.exists():
            self._home.rename(self._gone)
            self._home.touch()
        arguments = self._orbax.args.StandardSave({"parameters": leaves})
        self._saver.save(self._home / "latest", args=arguments, force=True)
