"""How urgent an alert is."""

from __future__ import annotations

from typing import Literal


Severity = Literal["page", "ticket", "info"]
PAGE: Severity = "page"
TICKET: Severity = "ticket"
INFO: Severity = "info"
SEVERITIES = (PAGE, TICKET, INFO)
