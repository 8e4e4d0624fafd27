"""Imported by Python at startup, in an interpreter that `jaxmon run` started."""

from __future__ import annotations

import importlib
import json
import os
import sys


def _leave_no_trace() -> dict[str, object]:
    """
    Restore path and environment as the user gave them; return the settings.

    Afterwards nothing leads a subprocess of the program here.
    """
    here = os.path.dirname(__file__)  # noqa: PTH120 - spelled as on sys.path
    sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    message = json.loads(os.environ.pop("JAXMON_BOOTSTRAP"))
    if message["pythonpath"] is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = message["pythonpath"]
    settings: dict[str, object] = message["settings"]
    return settings


def _start() -> None:
    try:
        settings = _leave_no_trace()
        from jaxmon.autostart import when_jax_is_imported  # noqa: PLC0415

        when_jax_is_imported(**settings)
    except Exception as error:  # noqa: BLE001 - the program comes first
        sys.stderr.write(
            "jaxmon could not start; the program runs without it: "
            f"{type(error).__name__}: {error}\n"
        )


_start()

# The environment's own module, which this one shadows. If there is none, the
# ImportError ends this import as well, and Python takes it as it does without us.
del sys.modules["sitecustomize"]
importlib.import_module("sitecustomize")
