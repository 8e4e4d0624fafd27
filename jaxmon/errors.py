"""
Errors that jaxmon raises on purpose.

    JaxmonError
    ├── SettingsError     a setting that cannot be used; says what is allowed
    ├── ConfigFileError   a configuration file that cannot be read or parsed
    ├── PageError         a metrics page that is not one
    ├── SloError          a line of slo.yaml that cannot be used
    ├── WebConfigError    a web configuration that cannot be used
    ├── WireError         bytes that are not the protocol buffer they should be
    ├── BaselineError     a file or an option of `jaxmon baseline` that cannot be used
    ├── BudgetExceeded    a block cost more than `jaxmon.budget` allows
    └── CommandError      ends a `jaxmon` command with an exit code
"""

from __future__ import annotations

from collections.abc import Sequence


class JaxmonError(Exception):
    """
    Base of every error that jaxmon raises on purpose.

    A message says what was found, what is allowed and what to do.
    """


class SettingsError(JaxmonError, ValueError):
    """A keyword argument or ``JAXMON_*`` variable that cannot be used."""


class ConfigFileError(JaxmonError, ValueError):
    """
    A configuration file that cannot be read or parsed; does not name the file.

    Args:
        problem: what is wrong, without the place.
        line: where, from 1; `None` where that is no matter of a line.
        column: likewise.
    """

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


class PageError(JaxmonError, ValueError):
    """Text that should be a Prometheus metrics page and is not."""


class SloError(JaxmonError, ValueError):
    """A line of ``slo.yaml`` that cannot be used; starts with file and line."""


class WebConfigError(JaxmonError, ValueError):
    """
    A web configuration (TLS, passwords) that cannot be used; starts with the file.
    """


class WireError(JaxmonError, ValueError):
    """Bytes that should be a protocol buffer and are not."""


class BaselineError(JaxmonError, ValueError):
    """A file or an option of ``jaxmon baseline`` that cannot be used."""


class BudgetExceeded(JaxmonError, AssertionError):  # noqa: N818 - says what happened
    """A block cost more than its `jaxmon.budget` allows; the message tells what did."""


class CommandError(JaxmonError):
    """
    Ends a ``jaxmon`` command; the CLI prints the message and exits.

    Args:
        message: one line.
        details: further lines, which are printed below it.
        exit_code: of the command.
    """

    def __init__(
        self, message: str, *, details: Sequence[str] = (), exit_code: int = 1
    ) -> None:
        super().__init__("\n  ".join([message, *details]))
        self.message = message
        self.details = details
        self.exit_code = exit_code
