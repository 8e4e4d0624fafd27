"""Optional dependencies: which extra provides which module."""

from __future__ import annotations

from importlib.util import find_spec

from jaxmon.errors import CommandError


EXTRAS = {
    "flax": "demo",
    "grafana_foundation_sdk": "dashboards",
    "jax": "jax",
    "jaxlib": "jax",
    "optax": "demo",
    "pynvml": "nvidia",
}


def require(command: str, *modules: str) -> None:
    """
    Check, without importing them, that *modules* (keys of `EXTRAS`) are installed.

    A command module imports none of them at its top, so that ``jaxmon --help``
    works without; the command calls this before it needs them.

    Raises:
        CommandError: one is missing; the message names the extra that provides it.
    """
    for module in modules:
        if find_spec(module) is None:
            msg = (
                f"jaxmon {command} needs {module}, which is not installed; "
                f"run: pip install 'jaxmon[{EXTRAS[module]}]'"
            )
            raise CommandError(msg)
