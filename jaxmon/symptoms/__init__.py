"""
Everything that can be wrong, once: findings, answers and alerts refer to it.

``docs/symptoms.md`` is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.symptoms.fleet import FLEET
from jaxmon.symptoms.program import PROGRAM
from jaxmon.symptoms.symptom import Symptom as Symptom
from jaxmon.symptoms.symptom import Urgency as Urgency


SYMPTOMS: Mapping[str, Symptom] = {one.name: one for one in (*PROGRAM, *FLEET)}
"""By name."""
