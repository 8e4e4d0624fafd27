"""
Every metric that jaxmon exports, once.

Agent, sidecar, dashboards, alerts, docs and tests refer to the constants in here; no
module spells a metric name. ``jaxmon_jit_calls_total`` is `JIT_CALLS`: a name is that
of its constant, base unit included. `docs/metrics.md` is generated from here.

The metrics of an agent are loaded with the package, those of the sidecar on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmon.catalog.agent import *  # noqa: F403 - a table on two sheets
from jaxmon.catalog.model import AGENT as AGENT
from jaxmon.catalog.model import BOTH as BOTH
from jaxmon.catalog.model import SIDECAR as SIDECAR
from jaxmon.catalog.model import Kind as Kind
from jaxmon.catalog.model import Metric as Metric
from jaxmon.catalog.model import Source as Source
from jaxmon.catalog.values import *  # noqa: F403


if TYPE_CHECKING:
    from jaxmon.catalog.sidecar import *  # noqa: F403
else:  # a type checker would take any name for known

    def __getattr__(name: str) -> object:
        """Load the metrics of the sidecar on first use of one of their names."""
        from importlib import import_module  # noqa: PLC0415 - few need it

        value = getattr(import_module("jaxmon.catalog.sidecar"), name)
        globals()[name] = value
        return value
