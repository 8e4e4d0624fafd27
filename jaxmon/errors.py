"""
Errors that jaxmon raises on purpose.

    JaxmonError
    ├── SettingsError     a setting that cannot be used; says what is allowed
    ├── PageError         a metrics page that is not one
    ├── SloError          a line of slo.yaml that cannot be used
    └── CommandError      ends a `jaxmon` command with an exit code
"""

from __future__ import annotations


class JaxmonError(Exception):
    """
    Base of every error that jaxmon raises on purpose.

    A message says what was found, what is allowed and what to do.
    """


class SettingsError(JaxmonError, ValueError):
    """
    A keyword argument or ``JAXMON_*`` variable that cannot be used.
    """


class PageError(JaxmonError, ValueError):
    """
    Text that should be a Prometheus metrics page and is not.
    """


class SloError(JaxmonError, ValueError):
    """
    A line of ``slo.yaml`` that cannot be used; starts with file and line.
    """


class CommandError(JaxmonError):
    """
    Ends a ``jaxmon`` command; the CLI prints the message and exits.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
