"""
GPUs that firing alerts are about, and whose they are.

Boards about services show the alerts of their hardware too, which another job may
report. At any time few GPUs have alerts; recorded, boards need not compare all of the
fleet's over their range.
"""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.accelerators import OWNED, READERS
from jaxmon.artifacts.overviews.model import HOST, Overview, Windows
from jaxmon.promql import Expr, alerts, eq, ne, re


FIRING = (re("alertname", "Jaxmon.+"), eq("alertstate", "firing"))
ABOUT_GPUS = (*FIRING, ne("uuid", ""))
# Of a host that programs share, but not about the GPUs of others.
ABOUT_HOSTS = (*FIRING, ne("instance", ""), eq("uuid", ""))


def _read(windows: Windows) -> Expr:
    """Return the GPUs that sidecars with alerts read, or read before they went down."""
    return READERS().latest(windows.silent).and_(alerts(*ABOUT_HOSTS), *HOST)


def _owned(windows: Windows) -> Expr:
    """Return the GPUs of services that have alerts, or whose readers have."""
    alerted = alerts(*ABOUT_GPUS).or_(ALERTED_READERS())
    return OWNED().latest(windows.silent).and_(alerted, "uuid")


ALERTED_READERS = Overview("instance", catalog.ACCELERATOR_INFO, "alerted", _read)
ALERTED = Overview("job", catalog.DEVICE_INFO, "alerted", _owned)

# In this order: the second reads the first.
HOSTS = (ALERTED_READERS, ALERTED)
