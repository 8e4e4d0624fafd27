"""What happens only while JAX traces a function."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from jaxmon.facts.events import TraceMistake
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import times
from jaxmon.symptoms.alert import TICKET
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.symptom import FAILURE, HINT, Symptom


_CLOCKS = ("time.", "datetime.", "date.")
_MOST_EVIDENCE = 3
_CONSTANT = "is traced. Its value is a constant of the program"
_MEASURE = "Measure outside of the jitted function, or pass the value as an argument."


class Misuse(NamedTuple):
    """
    A kind of mistake.

    Attributes:
        kind: as the agent calls it.
        topic: the name of the symptom.
        text: what it does, with ``text``, ``place`` and ``function``.
        again: what later calls do, with their number; if there are none, nothing is
            lost. Empty if that does not matter.
        action: what to do about it.
    """

    kind: str
    topic: str
    text: str
    again: str
    action: str

    def judge(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Detect it, once in each function."""
        for one, others in _grouped(snapshot, self.kind):
            function = _subject(one)
            calls = _repeated(snapshot, one) if self.again else None
            if calls == 0:
                continue
            text = self.text.format(text=one.text, place=one.place, function=function)
            if calls:
                text += self.again.format(times=times(calls), calls=f"{calls:,}")
            clock = self.kind == "frozen" and one.text.startswith(_CLOCKS)
            action = _MEASURE if clock else self.action
            yield Finding(
                *(self.topic, function, f"{text}."),
                *(_also(others), action),
                where=one.place,
            )


_MISUSES = (
    Misuse(
        *("frozen", "frozen_value"),
        f"{{text}} at {{place}} runs only while {{function}} {_CONSTANT}",
        ": it was reused {times}",
        "Use jax.random with a key that is an argument, or pass the value as an "
        "argument.",
    ),
    Misuse(
        *("advanced", "frozen_value"),
        f"{{text}} changes at {{place}} only while {{function}} {_CONSTANT}",
        ": it was reused {times}",
        "Keep it in the state that the function takes and returns, or change it "
        "outside, and pass it as an argument.",
    ),
    Misuse(
        *("dropped", "dropped_update"),
        "The result of {text} at {place} is not used, so nothing is updated: it "
        "returns a new value",
        "",
        "Assign the result, as in x = x.at[i].set(y).",
    ),
    Misuse(
        *("leaked", "leaked_tracer"),
        "{place} stores a traced value ({text}), and only while {function} is traced. "
        "It has no value there",
        "",
        "Return it from the jitted function, and store the result.",
    ),
    Misuse(
        *("printed", "printed_tracer"),
        "{text} at {place} runs only while {function} is traced, and shows a tracer, "
        "not its value",
        ". It did not run on {calls} later calls",
        "Use jax.debug.print, or print what the function returns.",
    ),
)


def misuses(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect what happens only while functions are traced."""
    for one in _MISUSES:
        yield from one.judge(snapshot)


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
        *(name, "F4", sentence, urgency, misuses),
        severity=TICKET if urgency is FAILURE else None,
        missing="only the source of the program shows it",
    )
    for name, sentence, urgency in (
        ("frozen_value", "A value of the host is a constant.", FAILURE),
        ("dropped_update", "An update of an array is dropped.", FAILURE),
        ("leaked_tracer", "A traced value outlives its trace.", FAILURE),
        ("printed_tracer", "A traced value is printed.", HINT),
    )
)
