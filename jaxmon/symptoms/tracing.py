"""What happens only while JAX traces a function."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from jaxmon.facts.events import TraceMistake
from jaxmon.facts.process import Snapshot
from jaxmon.formats.layout import times
from jaxmon.symptoms.alert import TICKET
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.symptom import FAILURE, HINT, Symptom


_CLOCKS = ("time.", "datetime.", "date.")
_MOST_EVIDENCE = 3


def frozen(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect values of the host that every later call reuses."""
    yield from _frozen_values(snapshot)
    yield from _advanced_values(snapshot)


def _frozen_values(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect times and random numbers of the host that every later call reuses."""
    for one, others in _grouped(snapshot, "frozen"):
        again = _repeated(snapshot, one)
        if again == 0:
            continue
        clock = one.text.startswith(_CLOCKS)
        yield Finding(
            "frozen_value",
            _subject(one),
            f"{one.text} at {one.place} runs only while {_subject(one)} is traced. "
            "Its value is a constant of the program"
            + (f": it was reused {times(again)}." if again else "."),
            _also(others),
            "Measure outside of the jitted function, or pass the value as an argument."
            if clock
            else "Use jax.random with a key that is an argument, or pass the value as "
            "an argument.",
            where=one.place,
        )


def _advanced_values(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect counters of the program that every later call takes for constants."""
    for one, others in _grouped(snapshot, "advanced"):
        again = _repeated(snapshot, one)
        if again == 0:
            continue
        yield Finding(
            "frozen_value",
            _subject(one),
            f"{one.text} changes at {one.place} only while {_subject(one)} is traced. "
            "Its value is a constant of the program"
            + (f": it was reused {times(again)}." if again else "."),
            _also(others),
            "Keep it in the state that the function takes and returns, or change it "
            "outside, and pass it as an argument.",
            where=one.place,
        )


def dropped(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect updates of arrays whose result is not used."""
    for one, others in _grouped(snapshot, "dropped"):
        yield Finding(
            "dropped_update",
            _subject(one),
            f"The result of {one.text} at {one.place} is not used, so nothing is "
            "updated: it returns a new value.",
            _also(others),
            "Assign the result, as in x = x.at[i].set(y).",
            where=one.place,
        )


def leaked(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect traced values that are stored outside of their function."""
    for one, others in _grouped(snapshot, "leaked"):
        yield Finding(
            "leaked_tracer",
            _subject(one),
            f"{one.place} stores a traced value ({one.text}), and only while "
            f"{_subject(one)} is traced. It has no value there.",
            _also(others),
            "Return it from the jitted function, and store the result.",
            where=one.place,
        )


def printed(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect messages about values that are unknown when they are written."""
    for one, others in _grouped(snapshot, "printed"):
        again = _repeated(snapshot, one)
        if again == 0:
            continue
        yield Finding(
            "printed_tracer",
            _subject(one),
            f"{one.text} at {one.place} runs only while {_subject(one)} is traced, "
            "and shows a tracer, not its value"
            + (f". It did not run on {again:,} later calls." if again else "."),
            _also(others),
            "Use jax.debug.print, or print what the function returns.",
            where=one.place,
        )


def _grouped(
    snapshot: Snapshot, kind: str
) -> Iterator[tuple[TraceMistake, list[TraceMistake]]]:
    """Return the first mistake of *kind* in each function, and the others there."""
    found = sorted(
        [one for one in snapshot.tracing.mistakes if one.kind == kind], key=_subject
    )
    for _, same in groupby(found, key=_subject):
        first, *others = same
        yield first, others


def _subject(mistake: TraceMistake) -> str:
    """Return the jitted function that runs it."""
    return mistake.functions[0] if mistake.functions else mistake.within


def _also(others: list[TraceMistake]) -> tuple[str, ...]:
    return tuple(f"also {one.text} at {one.place}" for one in others[:_MOST_EVIDENCE])


def _repeated(snapshot: Snapshot, mistake: TraceMistake) -> int | None:
    """
    Return how many calls of its functions reused a program, `None` if not counted. A
    function that is called once, to initialise something, loses nothing.
    """
    hits = [one.hits for one in snapshot.functions if one.name in mistake.functions]
    known = [one for one in hits if one is not None]
    return sum(known) if known else None


SYMPTOMS = tuple(
    Symptom(
        *(name, "F4", sentence, urgency, finding),
        severity=TICKET if urgency is FAILURE else None,
        missing="only the source of the program shows it",
    )
    for name, sentence, urgency, finding in (
        ("frozen_value", "A value of the host is a constant.", FAILURE, frozen),
        ("dropped_update", "An update of an array is dropped.", FAILURE, dropped),
        ("leaked_tracer", "A traced value outlives its trace.", FAILURE, leaked),
        ("printed_tracer", "A traced value is printed.", HINT, printed),
    )
)
