"""
An agent's place in the run directory: its slot, its Unix socket and its record.

Run directories are often under ``/tmp`` or ``/run``, where cleaners and logouts remove
files of running programs. Existing connections keep working but new ones fail, so every
few seconds the server's thread checks that its socket and lock still exist and, if not,
listens again.

Where another process took its path, and does not respond here, that is a process that
was killed, or runs on another host that shares the directory. The latter takes the path
back, and so on; after some turns, the agent leaves the slot to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxmon import endings, interrupts, rundir
from jaxmon.agent.guard import log
from jaxmon.errors import JaxmonError, PageError
from jaxmon.exposition.add import prepare
from jaxmon.facts.ending import CRASHED, FINISHED, RUNNING, ProcessEnd, State
from jaxmon.files.descriptor import NONE_LEFT
from jaxmon.http.listeners import Listener
from jaxmon.http.server import Server
from jaxmon.threads import RLock


_LOST = "the program has closed jaxmon's descriptors, and with them its lock"

_MOST_TURNS = 3

EVERY = 5.0
"""Seconds between two checks. One takes some 15 µs on the server's thread."""


class LocalSocket:
    """
    A slot in the run *directory*, with the socket of *server*, and its record.

    Args:
        began: when counting began, by `monotonic`, as the page of *server* says.
        running: returns the name of the loop that runs, ``""`` for none.
        position: returns which process this is and how far it has come, as fields of
            its record; called every few seconds.
    """

    def __init__(
        self,
        server: Server,
        directory: Path,
        *,
        began: float,
        running: Callable[[], str] = str,
        position: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._server = server
        self._running, self._position = running, position
        # The program may change its working directory.
        self._directory = directory.absolute()
        self._slot: rundir.Slot | None = None
        self._listener: Listener | None = None
        self._number: int | None = None
        self._ending: endings.EndWriter | None = None
        # The latest record of this process.
        self._record: ProcessEnd | None = None
        self._began = began
        self._trouble = ""
        self._has_noticed = False
        # How often it has replaced another process's socket in its own slot.
        self._turns = 0
        self._closed = False
        # Checks run on the server's thread, closing does not.
        self._lock = RLock()

    @property
    def number(self) -> int | None:
        """Number of the slot, `None` until there was one."""
        return self._number

    @property
    def path(self) -> str | None:
        """Path of the socket, `None` if there is none."""
        slot = self._slot
        return None if slot is None else str(slot.socket)

    def open(self) -> None:
        """
        Listen in the previous slot, or else in the lowest free one; before the server
        starts, or on its thread.

        Raises:
            RunDirError: the directory is unusable.
            OSError: no descriptors are left.
        """
        slot = rundir.acquire(self._directory, first=self._number)
        listener = None
        try:
            self._listener = listener = self._listen(slot)
            slot.bound()
        except BaseException:
            if listener is not None:
                slot.bound()
            slot.release()
            raise
        if self._ending is None or slot.number != self._number:
            path = endings.path_of(slot.socket)
            self._ending = endings.EndWriter(path, slot.mode)
        self._slot, self._number = slot, slot.number
        # Before it responds. It never raises, but for the program's exceptions.
        self._ending.begin(self._record)
        if self._ending.continued is not None:
            prepare()

    def check(self) -> None:
        """Listen again if the socket is gone; called on the server's thread."""
        with self._lock:
            if self._closed:
                return
            lost = self._has_lost()
            if self._slot is not None and self._slot.in_place() and not lost:
                self._refresh_record()
                return
            # The program may not have finished closing, or not opened its own yet.
            if lost and not self._has_noticed:
                self._has_noticed = True
                return
            self._has_noticed = False
            what = _LOST if lost else "jaxmon's run directory was modified"
            taken, number = self._slot is not None and self._slot.is_taken, self._number
            if taken and self._turns == _MOST_TURNS:
                self._give_up()
                return
            self._release()
            try:
                self.open()
                self._turns += taken and self._number == number
            except (JaxmonError, OSError) as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning(
                        "%s; the sidecar cannot see this process until that is fixed: "
                        "%s",
                        what,
                        error,
                    )
            else:
                self._trouble = ""
                log.warning("%s; the socket has been recreated at %s", what, self.path)

    def withdraw(self) -> None:
        """
        Unlink the socket before the server stops, so that the sidecar finds no dead
        one. The slot stays taken. Idempotent.
        """
        with self._lock:
            self._closed = True
            if self._slot is not None:
                if self._slot.is_lost:
                    log.warning(_LOST)
                    self._slot.keep()
                self._slot.withdraw()

    def keep(self, last: Callable[[str], bytes]) -> None:
        """
        Write what was counted in this slot, for the sidecar and the next process. If
        that fails, there is no file.

        Args:
            last: returns the counters of this agent as text, added to those in a text;
                raises `PageError` if that has something else.
        """
        slot, mine = self._slot, self._ending
        if slot is None or mine is None or mine.record is None:
            return
        try:
            if not slot.keep():  # the counts there are another process's
                return
            since, text = self._began, b""
            if mine.before is not None and mine.continued is not None:
                since = mine.before.counted_since
                with contextlib.suppress(ValueError, PageError):
                    text = last(endings.unpacked(mine.continued))
            if not 0 < len(text) <= endings.MOST:
                since, text = self._began, last("")
            if len(text) <= endings.MOST:
                self._reopen(mine)
                mine.keep(since, text)
        except OSError as error:  # a full disk, too small a volume
            interrupts.pass_on(error)

    def close(self) -> None:
        """Release the slot, so that the next agent finds it free."""
        with self._lock:
            self._closed = True
            self._end_record()
            if self._slot is not None:
                self._slot.release()
                self._slot = None

    def abandon(self) -> None:
        """
        Leave slot and socket to another process: in a forked child to the parent, as
        the lock may be held by a thread that no longer exists.
        """
        self._closed = True
        if self._ending is not None:
            self._ending.abandon()
            self._ending = None
        if self._slot is not None:
            self._slot.abandon()
            self._slot = None

    def note_loop(self) -> None:
        """Record which loop runs."""
        if (mine := self._ending) is not None:
            mine.run(self._running())

    def note_crash(self) -> None:
        """Record that an exception ends the program."""
        with self._lock:
            if (mine := self._ending) is not None:
                self._end(mine, CRASHED)

    def say(self, words: Mapping[str, Any]) -> None:
        """Record how this process ends, by fields of its record."""
        if (mine := self._ending) is not None:
            mine.update(words)

    def _listen(self, slot: rundir.Slot) -> Listener:
        try:
            return self._server.listen_unix(slot.socket, slot.mode)
        except OSError as error:
            interrupts.pass_on(error)
            if error.errno in NONE_LEFT:
                raise
            raise rundir.no_socket(slot.socket, error) from error

    def _reopen(self, mine: endings.EndWriter) -> None:
        """Open the record again if the program has closed it."""
        if mine.is_lost and self._slot is not None and self._slot.keep():
            record = mine.record
            mine.abandon()
            mine.begin(record)

    def _end(self, mine: endings.EndWriter, state: State) -> None:
        if mine.record is not None and mine.record.state == RUNNING:
            self._reopen(mine)
        mine.end(state)

    def _refresh_record(self) -> None:
        """Record how far the program has come, and again if the file was removed."""
        if (mine := self._ending) is not None:
            mine.hold()
            if not mine.in_place():
                self._record = mine.record or self._record
                mine.abandon()
                mine.begin(self._record)
            said = mine.record is not None and mine.record.kind
            # Loops that were left without their knowledge end here.
            known = {} if said else self._position()
            mine.update({**known, "running": self._running()})

    def _give_up(self) -> None:
        """Leave the slot, with all its files, to the process that keeps taking it."""
        log.warning(
            "another process keeps replacing jaxmon's socket %s; the sidecar cannot "
            "see this process. If hosts share that directory, set JAXMON_RUN_DIR to a "
            "directory of this host",
            self.path,
        )
        if self._listener is not None:
            self._server.close_listener(self._listener)
            self._listener = None
        self.abandon()

    def _has_lost(self) -> bool:
        """Return whether the program has closed a descriptor of ours."""
        listener, slot, mine = self._listener, self._slot, self._ending
        return (
            (listener is not None and not listener.sock.is_ours)
            or (slot is not None and slot.is_lost)
            or (mine is not None and mine.is_lost)
        )

    def _end_record(self) -> None:
        """Record that this process has finished; after an interruption, call again."""
        if (mine := self._ending) is not None:
            self._end(mine, FINISHED)
            # Unless it could not be written: then the latest that could.
            self._record = mine.record or self._record
            mine.abandon()

    def _release(self) -> None:
        # First, or our own socket would respond when we search for a free slot.
        if self._listener is not None:
            self._server.close_listener(self._listener)
            self._listener = None
        self._end_record()
        if self._slot is not None:
            self._slot.release()
            self._slot = None
