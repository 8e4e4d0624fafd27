"""Spans of steps, against what the program noted of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode, format_span_id

import jaxmon
from jaxmon.indicators.work import payers
from jaxmon.otel.traces.spans import Child, Compiled
from tests.helpers.otlp import Span, Traced, TraceReceiver, ids, tracing
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


# In nanoseconds: spans are measured by a monotonic clock.
CLOCKS_DIFFER = 5e7
PHASES = ["jax.trace", "jax.lower", "jax.backend_compile"]


class Trained:
    """What the program sent, and what it noted."""

    def __init__(self, receiver: TraceReceiver, said: dict[str, Any]) -> None:
        self.truth = said["truth"]
        self.waits = said["waits"]
        self.page = said["page"]
        self.compiles = set(said["compiles"])
        self.fails, self.slow = said["fails"], said["slow"]
        self.spans = receiver.spans

    def steps(self, loop: str) -> dict[int, Span]:
        """Return the spans of the steps of *loop*, by number."""
        found = [one for one in self.spans if one["name"] == f"step {loop}"]
        by_number = {one["attributes"]["jaxmon.step"]: one for one in found}
        assert len(by_number) == len(found)
        return by_number

    def below(self, span: Span) -> list[Span]:
        """Return the children of *span*, in the order of their beginning."""
        found = [one for one in self.spans if one["parent"] == span["id"]]
        return sorted(found, key=lambda one: one["began"])


@pytest.fixture(scope="module")
def trained() -> Iterator[Trained]:
    """Return one run of the program, which keeps no healthy step."""
    with TraceReceiver() as receiver:
        environ = {**receiver.environ, "OTEL_TRACES_SAMPLER": "always_off"}
        settings = {"JAXMON_OTLP": "0", "JAXMON_TRACES_WAIT": "0.001"}
        program = str(ROOT / "tests" / "programs" / "traced_steps.py")
        found = run_preloaded(program, env={**environ, **settings}).ok()
        yield Trained(receiver, json.loads(found.out.splitlines()[-1]))


def test_what_was_not_healthy_is_kept(trained: Trained) -> None:
    """Steps that compiled, failed or were slow; others only if slower than most."""
    steps, truth = trained.steps("train"), trained.truth
    expected = trained.compiles | {trained.fails, trained.slow}
    assert expected <= steps.keys()
    # A step ends where the next one is requested; the last is not kept for its time.
    lasted = [after[0] - step[0] for step, after in pairwise(truth)]
    usual = sorted(lasted)[len(lasted) // 2]
    for number in steps.keys() - expected:
        assert lasted[number] > usual
    for number, span in steps.items():
        failed = number == trained.fails
        assert span["failed"] == failed
        assert span["attributes"] == {
            "jaxmon.loop": "train",
            "jaxmon.step": number,
            "jaxmon.outcome": "error" if failed else "success",
            **({"error.type": "TypeError"} if failed else {}),
        }
        assert span["parent"] == ""


def test_a_step_lasts_as_long_as_the_program_says(trained: Trained) -> None:
    """From before its data is requested until the next is."""
    truth = trained.truth
    for number, span in trained.steps("train").items():
        began, ended = truth[number]
        assert span["began"] <= began + CLOCKS_DIFFER
        assert span["ended"] >= ended - CLOCKS_DIFFER
        if number + 1 < len(truth):
            assert span["ended"] <= truth[number + 1][0] + CLOCKS_DIFFER
        waits = [one for one in trained.below(span) if one["name"] == "data wait"]
        assert [one["began"] for one in waits] == [span["began"]]
        assert waits[0]["ended"] <= span["ended"]


@pytest.mark.parametrize(
    ("loop", "number", "function"),
    [
        ("train", 0, "step"),
        ("train", 40, "step"),
        ("evaluate", 0, "score"),
        ("finetune", 0, "step"),
    ],
)
def test_compiles_are_below_the_step_that_paid(trained, loop, number, function):
    """With their phases, in the innermost loop; also if it is left by ``break``."""
    span = trained.steps(loop)[number]
    (compile_,) = [
        one for one in trained.below(span) if one["name"].startswith("jax.compile")
    ]
    assert compile_["name"] == f"jax.compile __main__.{function}"
    assert [one["name"] for one in trained.below(compile_)] == PHASES
    assert span["began"] <= compile_["began"] <= compile_["ended"] <= span["ended"]
    left = loop == "finetune"
    assert span["attributes"]["jaxmon.outcome"] == ("left" if left else "success")


@pytest.mark.parametrize(
    ("place", "name", "how", "planted"),
    [
        ("step train", "sync", "block_until_ready", 0),
        ("predict", "transfer device_to_host", "float", 1),
    ],
)
def test_long_waits_are_below_what_waited(
    trained: Trained, place: str, name: str, how: str, planted: int
) -> None:
    """Long waits for the device have a span in their step or request, short none."""
    (wait,) = [one for one in trained.spans if one["name"] == name]
    (parent,) = [one for one in trained.spans if one["id"] == wait["parent"]]
    assert parent["name"] == place
    attributes = wait["attributes"]
    assert attributes["jaxmon.how"] == how
    assert attributes["code.file.path"] == "tests/programs/traced_steps.py"
    assert attributes.get("jaxmon.bytes") == (4 if name != "sync" else None)
    began, ended = trained.waits[planted]
    assert began - CLOCKS_DIFFER <= wait["began"]
    assert wait["ended"] <= ended + CLOCKS_DIFFER
    assert wait["ended"] - wait["began"] >= 0.001e9


def test_exemplars_name_the_steps(trained: Trained) -> None:
    """Those of the metric are the spans of steps that were kept."""
    lines = [
        line
        for line in trained.page.splitlines()
        if line.startswith("jaxmon_step_seconds_bucket") and " # {" in line
    ]
    ids = r'trace_id="(\w+)",span_id="(\w+)"'
    named = {re.findall(ids, line)[0] for line in lines}
    steps = [one for one in trained.spans if one["name"].startswith("step ")]
    assert named <= {(one["trace"], one["id"]) for one in steps}
    assert named & {
        (one["trace"], one["id"]) for one in steps if one["name"] == "step train"
    }


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Return what is traced while the test runs, which keeps one step in four."""
    with tracing(ratio=0.25) as found:
        yield found


def compile_in(traced: Traced) -> None:
    """Make the spans of a compile here."""
    payer = traced.tracer.payer(payers())
    assert payer is not None
    fact = Compiled(
        "f", 1.0, 2.0, "compiled", None, first=True, looked_up=False, phases=()
    )
    assert traced.tracer.compiled(fact, payer) is not None


def numbers(spans: list[ReadableSpan]) -> list[int]:
    """Return the numbers of the steps in *spans*."""
    return [
        number
        for one in spans
        if isinstance(number := (one.attributes or {}).get("jaxmon.step"), int)
    ]


def test_every_process_keeps_the_same_healthy_steps(traced: Traced) -> None:
    """One in so many, by number; the last, left open, is none."""
    for _ in jaxmon.steps(range(12)):
        pass
    assert numbers(traced.spans) == [3, 7, 11]


def test_the_applications_span_is_the_parent(traced: Traced) -> None:
    """That which is current when the loop begins."""
    with traced.provider.get_tracer("app").start_as_current_span("epoch") as epoch:
        for _ in jaxmon.steps(range(4)):
            pass
    parent = format_span_id(epoch.get_span_context().span_id)
    (step,) = [one for one in traced.spans if one.name == "step train"]
    assert ids(step)[1] == parent


def test_a_request_in_a_step_has_its_compiles(traced: Traced) -> None:
    """Whoever waits for it directly; the step around it is not kept for that."""
    for number in jaxmon.steps(range(2)):
        with jaxmon.request("predict"):
            if number == 0:
                compile_in(traced)
    assert [one.name for one in traced.spans] == ["jax.compile f", "predict", "predict"]


def test_a_source_that_raises_fails_the_step(traced: Traced) -> None:
    """Its span says what was raised."""

    def source() -> Iterator[int]:
        yield 0
        raise OSError("disk")  # noqa: EM101 - as programs do

    with pytest.raises(OSError, match="disk"):
        for _ in jaxmon.steps(source()):
            pass
    step = traced.spans[-1]
    assert numbers([step]) == [1]
    assert step.status.status_code is StatusCode.ERROR
    assert (step.attributes or {})["error.type"] == "OSError"


def test_waits_are_bounded(traced: Traced) -> None:
    """A request or step has 32 of them; a step that is not kept has none."""

    def wait() -> None:
        place = traced.tracer.place()
        assert place is not None
        traced.tracer.add(Child("sync", 1.0, 2.0, {}), place)

    for number in jaxmon.steps(range(4)):
        for _ in range(40 if number else 1):
            wait()
    with jaxmon.request("predict"):
        for _ in range(40):
            wait()
    names = [one.name for one in traced.spans]
    assert names.count("sync") == 64
    assert numbers(traced.spans) == [3]


def test_outside_of_steps_a_wait_is_below_the_applications_span(traced: Traced) -> None:
    """Without one it has no span."""
    assert traced.tracer.place() is None
    with traced.provider.get_tracer("app").start_as_current_span("work") as work:
        place = traced.tracer.place()
        assert place is not None
        traced.tracer.add(Child("sync", 1.0, 2.0, {}), place)
    parent = format_span_id(work.get_span_context().span_id)
    assert ids(traced.spans[0])[1] == parent


def test_a_loop_that_is_left_frees_what_follows(traced: Traced) -> None:
    """A compile after it is not its child, and its span ends when it was left."""
    for _ in jaxmon.steps(range(9)):
        compile_in(traced)
        break
    compile_in(traced)
    assert [one.name for one in traced.spans] == ["jax.compile f"] * 2
    traced.tracer.settle()
    step = traced.spans[-1]
    assert step.name == "step train"
    assert ids(traced.spans[0])[1] is not None
    assert ids(traced.spans[1])[1] is None
    assert trace.get_current_span() is trace.INVALID_SPAN
