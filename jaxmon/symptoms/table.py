"""Every symptom by its name: those of which an earlier one is a cause come later."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.symptoms import (
    cache,
    checkpoints,
    compiles,
    errors,
    hardware,
    job,
    memory,
    monitoring,
    recompiles,
    requests,
    results,
    runs,
    serving,
    slowdowns,
    starts,
    steps,
    time,
    tracing,
    transfers,
    values,
)
from jaxmon.symptoms.symptom import Symptom


_FAMILIES = (
    *(memory, compiles, runs, steps, requests, errors, values, results, serving),
    *(checkpoints, tracing, recompiles, slowdowns, time, transfers, cache),
    *(starts, job, hardware, monitoring),
)

SYMPTOMS: Mapping[str, Symptom] = {
    one.name: one for family in _FAMILIES for one in family.SYMPTOMS
}
