"""
Serves an agent's metrics on a TCP port, and on a Unix socket for the sidecar, in a slot
of the run directory, which also has the record of this process.

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
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmon import interrupts
from jaxmon.agent.end_writer import EndWriter
from jaxmon.agent.guard import Guard, log
from jaxmon.errors import JaxmonError, OtlpError, PageError
from jaxmon.exposition.add import prepare
from jaxmon.exposition.families import Collect
from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED
from jaxmon.host import disclosure, rundir
from jaxmon.host.files.descriptor import NONE_LEFT
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.server import Handler, Server
from jaxmon.host.http.sockets import Listener
from jaxmon.otel import is_named
from jaxmon.settings import SIDECAR_PORT, Settings
from jaxmon.threads import Deadline, RLock


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.otel.environment import Plan
    from jaxmon.otel.pusher import Pusher


def planned(settings: Settings) -> Plan | None:
    """
    Return how to push, by the settings and else the environment; `None` if nothing is
    to be pushed. From now on, histograms count what it needs.
    """
    if settings.otlp or (settings.otlp is None and is_named(os.environ)):
        from jaxmon.otel import environment  # noqa: PLC0415 - few name any of it

        if settings.otlp or environment.is_asked(os.environ):
            return environment.plan(os.environ)
    return None


def prepared(
    plan: Plan | None, collect: Collect, settings: Settings, guard: Guard
) -> Pusher | None:
    """Return what pushes the families of *collect*, `None` if nothing can."""
    if plan is None:
        return None
    from jaxmon.otel.pusher import Pusher  # noqa: PLC0415 - few processes push

    pusher = Pusher(
        collect,
        plan._replace(names=settings.otlp_names),
        timer=not settings.serverless,
        failed=functools.partial(guard.failed, stays_on=True),
        run=functools.partial(guard.run, "otlp"),
    )
    try:
        pusher.prepare()
    except OtlpError as error:
        log.warning("jaxmon serves its metrics but does not push them: %s", error)
        return None
    return pusher


# Number of ports tried after a busy one.
_PORTS = 64
_LOST = "the program has closed jaxmon's descriptors, and with them its lock"
_MOST_TURNS = 3
# Seconds between two checks. One takes some 80 µs on the server's thread. The first one
# records the command line, for who is killed.
_EVERY, _FIRST = 5.0, 0.5


class Serving:
    """
    The server of one agent, with handlers by path, some only for the Unix socket, on
    which *local* returns what serves. *on_error* is called with the site of each
    failure. `url` is that of the metrics, `None` if no TCP port is open.
    """

    def __init__(  # noqa: PLR0913 - what is served, and who asks
        self,
        settings: Settings,
        routes: Mapping[str, Handler],
        local_routes: Mapping[str, Handler],
        on_error: Callable[[str, BaseException], None],
        *,
        local: Callable[[Server, Path], LocalSocket],
        deadline: Deadline,
    ) -> None:
        self._deadline = deadline
        self._settings = settings
        self._routes = dict(routes)
        self._local_routes = {path: _shown(of) for path, of in local_routes.items()}
        self._on_error = on_error
        self._local_of = local
        self._server: Server | None = None
        self._local: LocalSocket | None = None
        self.url: str | None = None

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` if there is none."""
        return None if self._local is None else self._local.path

    @property
    def slot(self) -> int | None:
        """Number of the slot that the Unix socket has, `None` if there is none."""
        return None if self._local is None else self._local.number

    def dropped(self) -> int:
        """Return the number of refused connections."""
        return self._server.dropped if self._server is not None else 0

    def start(self) -> None:
        """
        Listen, and start the server if anything listens.

        Raises:
            OSError, RuntimeError: no descriptors or threads are left.
        """
        server = Server(
            self._routes,
            local_routes=self._local_routes,
            name="jaxmon-server",
            on_error=self._on_error,
        )
        # Stored first: whatever fails, it is closed again.
        self._server = server
        listening = [self._listen_tcp(server), self._listen_unix(server)]
        if not any(listening):
            self._server = None
            return
        server.start()

    def withdraw(self, last: Callable[[str], bytes]) -> None:
        """Stop the server, and leave what was counted to the sidecar. Idempotent."""
        self._stop()
        if self._local is not None:
            self._local.keep(last)

    def close(self) -> None:
        """Stop the server and release the slot. Idempotent."""
        self._stop()
        if self._local is not None:
            self._local.close()

    def abandon(self) -> None:
        """Close descriptors and leave files to the parent; called in a forked child."""
        if self._server is not None:
            self._server.abandon()
        if self._local is not None:
            self._local.abandon()
        self.url = None

    def _stop(self) -> None:
        if self._local is not None:
            self._local.withdraw()
        if self._server is not None:
            self._server.stop(self._deadline.portion())
        self.url = None

    def _listen_tcp(self, server: Server) -> bool:
        first, host = self._settings.port, self._settings.host
        if first is None:
            return False
        last = min(first + _PORTS, 65535) if first else 0
        for port in range(first, last + 1):
            if port == SIDECAR_PORT != first:
                continue
            try:
                bound = server.listen_tcp(host, port)
            except OSError as error:
                interrupts.pass_on(error)
                problem = error
                continue
            if first and bound != first:
                text = "port %d is in use; jaxmon serves on port %d instead"
                log.warning(text, first, bound)
            shown = f"[{host}]" if ":" in host else host
            self.url = f"http://{shown}:{bound}/metrics"
            return True
        text = "jaxmon could not open a TCP port: %s:%d to %d: %s"
        log.warning(text, host, first, last, problem)
        return False

    def _listen_unix(self, server: Server) -> bool:
        if not self._settings.socket:
            return False
        # Stored first, like the server.
        self._local = local = self._local_of(
            server, rundir.locate(self._settings.run_dir)
        )
        try:
            local.open()
        except (JaxmonError, OSError) as error:
            interrupts.pass_on(error)
            text = "jaxmon could not open the Unix socket for the sidecar: %s"
            log.warning(text, error)
            self._local = None
            return False
        server.every(_EVERY, local.check, first=_FIRST)
        return True


class LocalSocket:
    """
    A slot in the run *directory*, with the socket of *server*, and its record: *ending*
    writes that, and *position* returns as its fields which process this is and how far
    it has come. Counting *began* by `monotonic`, as the page of *server* says.
    """

    def __init__(
        self,
        server: Server,
        directory: Path,
        *,
        began: float,
        ending: EndWriter | None = None,
        position: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._server = server
        self._ending = ending or EndWriter()
        self._position = position
        # The program may change its working directory.
        self._directory = directory.absolute()
        self._slot: rundir.Slot | None = None
        self._listener: Listener | None = None
        # Of the slot, `None` until there was one.
        self.number: int | None = None
        self._began = began
        self._trouble = ""
        self._has_noticed = False
        # How often it has replaced another process's socket in its own slot.
        self._turns = 0
        self._closed = False
        # Checks run on the server's thread, closing does not.
        self._lock = RLock()

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
        slot = rundir.acquire(self._directory, first=self.number)
        listener = None
        try:
            self._listener = listener = self._listen(slot)
            slot.bound()
        except BaseException:
            if listener is not None:
                slot.bound()
            slot.release()
            raise
        self._slot, self.number = slot, slot.number
        # Before it responds. It never raises, but for the program's exceptions.
        self._ending.take(slot.socket.with_suffix(".end"), slot.mode)
        if self._ending.continued is not None:
            prepare()

    def check(self) -> None:
        """Listen again if the socket is gone; called on the server's thread."""
        with self._lock:
            if self._closed:
                return
            lost = self._has_lost()
            if self._slot is not None and self._slot.in_place() and not lost:
                self._ending.refresh(self._position())
                return
            # The program may not have finished closing, or not opened its own yet.
            if lost and not self._has_noticed:
                self._has_noticed = True
                return
            self._has_noticed = False
            what = _LOST if lost else "jaxmon's run directory was modified"
            taken, number = self._slot is not None and self._slot.is_taken, self.number
            if taken and self._turns == _MOST_TURNS:
                self._give_up()
                return
            # First, or our own socket would respond when we search for a free slot.
            self._close_listener()
            self._release()
            try:
                self.open()
                self._turns += taken and self.number == number
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
        that fails, there is no file. *last* returns the counters of this agent as text,
        added to those in a text; raises `PageError` if that has something else.
        """
        mine = self._ending
        if mine.record is None:
            return
        since, text = self._began, b""
        if mine.before is not None and mine.continued is not None:
            since = mine.before.counted_since
            with contextlib.suppress(ValueError, PageError):
                text = last(endings.unpacked(mine.continued))
        if not 0 < len(text) <= endings.MOST:
            since, text = self._began, last("")
        with interrupts.expected(OSError):  # a full disk, too small a volume
            if len(text) <= endings.MOST:
                mine.keep(since, text)

    def close(self) -> None:
        """Release the slot, so that the next agent finds it free."""
        with self._lock:
            self._closed = True
            self._release()

    def abandon(self) -> None:
        """
        Leave slot and socket to another process: in a forked child to the parent, as
        the lock may be held by a thread that no longer exists.
        """
        self._closed = True
        self._ending.abandon()
        if self._slot is not None:
            self._slot.abandon()
            self._slot = None

    def _listen(self, slot: rundir.Slot) -> Listener:
        try:
            return self._server.listen_unix(slot.socket, slot.mode)
        except OSError as error:
            interrupts.pass_on(error)
            if error.errno in NONE_LEFT:
                raise
            raise rundir.no_socket(slot.socket, error) from error

    def _give_up(self) -> None:
        """Leave the slot, with all its files, to the process that keeps taking it."""
        log.warning(
            "another process keeps replacing jaxmon's socket %s; the sidecar cannot "
            "see this process. If hosts share that directory, set JAXMON_RUN_DIR to a "
            "directory of this host",
            self.path,
        )
        self._close_listener()
        self.abandon()

    def _has_lost(self) -> bool:
        """Return whether the program has closed a descriptor of ours."""
        listener, slot = self._listener, self._slot
        return (
            (listener is not None and not listener.sock.is_ours)
            or (slot is not None and slot.is_lost)
            or self._ending.is_lost
        )

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._server.close_listener(self._listener)
            self._listener = None

    def _release(self) -> None:
        self._ending.end(FINISHED)
        self._ending.abandon()
        if self._slot is not None:
            self._slot.release()
            self._slot = None


def _shown(page: Handler) -> Handler:
    """Return the handler *page* whose documents are as they may be shown."""

    def shown(request: Request) -> Response | Future[Response]:
        found = page(request)
        if isinstance(found, Response) and found.content_type == "application/json":
            body = disclosure.document(found.body.decode())
            return found._replace(body=body.encode())
        return found

    return shown
