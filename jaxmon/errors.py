"""Errors that jaxmon raises on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial


class JaxmonError(Exception):
    """Base of what jaxmon raises on purpose: what was found, is allowed, and to do."""


class SettingsError(JaxmonError, ValueError):
    """An invalid keyword argument or ``JAXMON_*`` variable."""


class ConfigFileError(JaxmonError, ValueError):
    """A configuration file that cannot be read or parsed; does not name the file."""

    def __init__(
        self, problem: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        place = [
            f"{name} {number}"
            for name, number in (("line", line), ("column", column))
            if number is not None
        ]
        super().__init__(": ".join([", ".join(place), problem] if place else [problem]))
        self.problem = problem
        self.line = line
        self.column = column


class OtlpError(JaxmonError):
    """Metrics cannot be pushed by OTLP: a missing extra, or an invalid variable."""


class PageError(JaxmonError, ValueError):
    """Text that is not valid Prometheus exposition format."""


class SloError(JaxmonError, ValueError):
    """An invalid line of ``slo.yaml``; the message starts with file and line."""


class WebConfigError(JaxmonError, ValueError):
    """An invalid web configuration (TLS, passwords); the message names the file."""


class WireError(JaxmonError, ValueError):
    """Bytes that are not a valid protocol buffer."""


class BaselineError(JaxmonError, ValueError):
    """An invalid file or option of ``jaxmon baseline``."""


class SignaturesError(JaxmonError, ValueError):
    """An invalid file of signatures."""


class BudgetExceeded(JaxmonError, AssertionError):  # noqa: N818 - says what happened
    """A block exceeded its `jaxmon.budget`; the message names the causes."""


class CompiledAfterReady(JaxmonError):  # noqa: N818 - says what happened
    """A jitted function needs a compile after `jaxmon.ready`; the message says why."""


class CommandError(JaxmonError):
    """Ends a ``jaxmon`` command with *exit_code*; prints one line, *details* below."""

    def __init__(
        self, message: str, *, details: Sequence[str] = (), exit_code: int = 1
    ) -> None:
        super().__init__("\n  ".join([message, *details]))
        self.message = message
        self.details = details
        self.exit_code = exit_code


# Of a wrong option or argument.
misuse = partial(CommandError, exit_code=2)


@contextmanager
def raised(
    error: Callable[[str], Exception], about: object, *caught: type[Exception]
) -> Iterator[None]:
    """Raise *error* instead of what is *caught*: its text, after *about* if given."""
    try:
        yield
    except caught as cause:
        raise error(f"{about}: {cause}" if about else str(cause)) from cause
