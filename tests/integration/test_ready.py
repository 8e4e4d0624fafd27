"""What a process compiles after it was ready, against what JAX reports itself."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


# JAX reports each program that it compiles; `late` has those since `mark`.
PROGRAM = """
    import json, sys, jaxmon
    sys.path.append({root!r})
    agent = jaxmon.instrument(port=None, socket=False, sample_rate=0, {settings})
    import jax, numpy as np
    import jax.numpy as jnp
    from jaxmon.agent.warm.part import WarmStarts
    from tests.helpers import inside

    built = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: built.append(event)
        if event.endswith("backend_compile_duration") else None)

    @jax.jit
    def predict(x):
        return jnp.tanh(x) @ x.T

    @jax.jit
    def rerank(x):
        return x[::-1]

    def call(size):
        return predict(np.ones((size, 4), np.float32))

    def exported():
        page = inside.part(agent, WarmStarts).pages()["/debug/signatures"]
        return json.loads(page(None).body)

    def counted():
        values = [(name, value) for family in agent.collect()
                  for name, value in family.samples
                  if name.startswith("jaxmon_compiles_after_ready_total")]
        return {{name.split('"')[1]: value for name, value in values}}

    def report(**more):
        from jaxmon.facts.process import read
        from jaxmon.symptoms.findings import find
        from jaxmon.agent.reports.exit_reports import events_of
        events = events_of(inside.events(agent))
        snapshot = read(inside.overview(agent), events)
        found = [finding._asdict() for finding in find(snapshot)
                 if finding.topic in ("after_ready", "recompile", "cold_requests")]
        print(json.dumps(dict(counted=counted(), found=found, **more), default=str))

{body}
"""


def run(body: str, settings: str = "") -> dict[str, Any]:
    """Return what a program reports that has run *body*."""
    text = indent(dedent(body), " " * 4)
    source = PROGRAM.format(root=str(ROOT), settings=settings, body=text)
    done = run_preloaded("-c", dedent(source), optimised=True).ok()
    found: dict[str, Any] = done.json()
    found["log"] = done.err
    return found


@pytest.mark.ground_truth
def test_late_compiles_are_counted_as_jax_does():
    """Each is a finding with what differs; those before, and hits, are none."""
    found = run(
        """
        for size in (4, 8):
            call(size)
        jaxmon.ready()
        mark = len(built)
        for size in (4, 8, 5, 4, 5, 6):
            with jaxmon.request("predict"):
                call(size)
        rerank(np.ones(3))
        report(late=len(built) - mark)
        """
    )

    assert found["late"] == sum(found["counted"].values())
    assert found["counted"] == {"__main__.predict": 2, "__main__.rerank": 1}
    predict, rerank = found["found"]
    assert predict["verdict"].startswith(
        "__main__.predict was compiled twice after jaxmon.ready(), which took "
    )
    assert "and 2 requests waited" in predict["verdict"]
    assert "float32[8,4] → float32[5,4]" in " ".join(predict["evidence"])
    assert "float32[4,4] → float32[8,4]" not in " ".join(predict["evidence"])
    assert (rerank["subject"], rerank["evidence"]) == ("__main__.rerank", [])
    assert {of["topic"] for of in found["found"]} == {"after_ready"}
    assert {of["severity"] for of in found["found"]} == {"ticket"}


def test_a_process_that_is_warm_has_none():
    """
    Nor has one that never says that it is ready, however often it compiles; after five
    minutes without, it is inferred, and nothing follows.
    """
    warm = run(
        """
        for size in (4, 8):
            call(size)
        jaxmon.ready()
        jaxmon.ready()
        for size in (4, 8, 4):
            call(size)
        report()
        """
    )
    silent = run(
        """
        from jaxmon.agent.warm import part
        for size in range(3, 6):
            call(size)
        time, ready = part.wall_time, [inside.overview(agent)["ready"]]
        part.wall_time = lambda: time() + 300
        ready.append(inside.overview(agent)["ready"])
        call(6)
        ready.append(inside.overview(agent)["ready"])
        report(ready=[[of["quiet"] > 0, of["compiled"]] for of in ready])
        """
    )

    assert (warm["counted"], warm["found"]) == ({}, [])
    assert (silent["counted"], silent["found"]) == ({}, [])
    assert silent["ready"] == [[False, 0], [True, 0], [True, 1]]


@pytest.mark.ground_truth
def test_a_warm_up_is_over_with_the_first_request():
    """What the program prepares after `jaxmon.warmup` is not late."""
    found = run(
        """
        call(4)
        document = exported()
        jax.clear_caches()
        jaxmon.warmup(predict, document)
        rerank(np.ones(2))
        before = counted()
        with jaxmon.request("predict"):
            call(4)
        hits = counted()
        with jaxmon.request("predict"):
            call(5)
        jaxmon.warmup(predict, document)  # of another model, while it serves
        report(before=before, hits=hits)
        """
    )

    assert (found["before"], found["hits"]) == ({}, {})
    assert found["counted"] == {"__main__.predict": 1}
    (finding,) = found["found"]
    assert "after its warm-up" in finding["verdict"]


def test_a_canary_fails_and_nothing_else():
    """The call raises before XLA compiles; others go on, and so does a retry."""
    found = run(
        """
        call(4)
        jaxmon.ready()
        raised, compiled = [], []
        from jax._src import compiler
        for name in ("backend_compile", "backend_compile_and_load"):
            if original := getattr(compiler, name, None):
                def counting(*args, original=original, **options):
                    compiled.append(args)
                    return original(*args, **options)
                setattr(compiler, name, counting)
        for size in (4, 5, 5, 4):
            try:
                call(size)
            except jaxmon.CompiledAfterReady as error:
                raised.append([size, str(error)])
        late = len(compiled)
        padded = jnp.pad(np.ones(3), 1).shape  # is not jitted by the program
        counts = counted()
        jaxmon.uninstrument()
        print(json.dumps(dict(raised=raised, late=late, padded=padded, counted=counts,
                              again=call(5).shape, sizes=predict._cache_size())))
        """,
        'after_ready="fail"',
    )

    assert [size for size, _ in found["raised"]] == [5, 5]
    assert found["raised"][0][1].startswith(
        "__main__.predict compiles after jaxmon.ready(): argument x: float32[4,4] → "
        "float32[5,4]; "
    )
    assert found["late"] == 0
    assert found["padded"] == [5]
    assert "__main__.predict" not in found["counted"]
    assert (found["again"], found["sizes"]) == ([5, 5], 2)


def test_a_warning_says_what_differs():
    """In the log, once for each compile."""
    found = run(
        """
        call(4)
        jaxmon.ready()
        for size in (5, 5):
            call(size)
        report()
        """,
        'after_ready="warn"',
    )

    lines = [line for line in found["log"].splitlines() if "after the process" in line]
    assert len(lines) == 1
    assert lines[0].startswith("__main__.predict compiled for ")
    assert lines[0].endswith("argument x: float32[4,4] → float32[5,4]")


# A client sends sizes at random, and counts them itself.
TRAFFIC = """
    import random
    for size in (4, 8, 12, 16, 32, 64):
        call(size)
    rerank(np.ones(3)), rerank(np.ones(5))
    document = exported()
    jax.clear_caches()
    warmed = jaxmon.warmup([predict, rerank], document, uses={uses})
    call(64)  # of the program itself, before it is ready
    jaxmon.ready()
    mark, sent = len(built), {{}}
    chosen = random.Random(7)
    for _ in range(200):
        size = chosen.choices((4, 12, 16, 17, 30), (90, 80, 20, 5, 5))[0]
        sent[size] = sent.get(size, 0) + 1
        call(size)
    functions = exported()["functions"]
    report(
        sent=sent, late=len(built) - mark, ready=inside.overview(agent)["ready"],
        file=[[function["qualname"], signature["args"][0]["shape"], signature["used"]]
              for function in functions for signature in function["signatures"]],
    )
"""


@pytest.mark.ground_truth
def test_what_was_warmed_and_used_is_exactly_what_the_client_sent():
    """However often each was sent; what is missing differs from the nearest size."""
    found = run(TRAFFIC.format(uses=True))
    sent = {int(size): count for size, count in found["sent"].items()}
    warmed = {function["name"]: function for function in found["ready"]["warmed"]}
    predict, rerank = warmed["__main__.predict"], warmed["__main__.rerank"]

    assert set(sent) == {4, 12, 16, 17, 30}
    assert (predict["calls"], predict["signatures"]) == (200, 6)
    assert predict["used"] == len(sent.keys() & {4, 12, 16})
    assert predict["unused_signatures"] == [
        f"[0]: float32[{size},4]" for size in (8, 32, 64)
    ]
    assert (rerank["calls"], rerank["used"], rerank["unused"]) == (0, 0, 2)
    assert {size: used for name, (size, *_), used in found["file"]} == {
        **{size: size in sent for size in (4, 8, 12, 16, 32, 64)},
        **dict.fromkeys((17, 30)),  # not warmed up
        **dict.fromkeys((3, 5), False),
    }
    assert found["late"] == found["counted"]["__main__.predict"] == 2
    (finding,) = found["found"]
    assert sorted(line.split(": ", 1)[1] for line in finding["evidence"]) == [
        "argument x: float32[32,4] → float32[17,4]",
        "argument x: float32[32,4] → float32[30,4]",
    ]


def test_without_uses_no_more_is_said_than_is_known():
    """Of a function that was not called, all; of another, nothing."""
    found = run(TRAFFIC.format(uses=False))

    counts = {
        function["name"]: (function["calls"], function["used"], function["unused"])
        for function in found["ready"]["warmed"]
    }
    assert counts == {"__main__.predict": (200, 0, 0), "__main__.rerank": (0, 0, 2)}
    assert {used for name, _, used in found["file"] if name == "predict"} == {None}


def test_noticing_uses_compiles_nothing_and_costs_one_lookup_each():
    """The first call of each program leaves the fast path, and no other does."""
    found = run(
        """
        for size in (4, 8):
            call(size)
        document = exported()
        jaxmon.warmup(predict, document, uses=True)
        jaxmon.ready()
        function = inside.table(agent).named("__main__.predict")
        before, mark = function.missed, len(built)
        for size in (4, 8) * 50:
            call(size)
        missed = function.missed - before
        report(missed=missed, late=len(built) - mark)
        """
    )

    assert (found["missed"], found["late"], found["counted"]) == (2, 0, {})


def test_a_canary_that_failed_can_be_warmed_up_and_goes_on():
    """The same call is a hit then; other threads never noticed."""
    found = run(
        """
        import threading
        call(4)
        document = exported()
        (signature,) = document["functions"][0]["signatures"]
        signature["args"][0]["shape"] = [5, 4]
        jaxmon.ready()
        stop, served, raised = threading.Event(), [], []
        def serve():
            while not stop.is_set():
                served.append(float(np.asarray(call(4))[0, 0]))
        thread = threading.Thread(target=serve)
        thread.start()
        for attempt in range(3):
            try:
                raised.append(call(5).shape)
            except jaxmon.CompiledAfterReady as error:
                raised.append(type(error).__name__)
        jaxmon.warmup(predict, document)
        mark = len(built)
        raised.append(call(5).shape)
        stop.set(), thread.join()
        report(raised=raised, late=len(built) - mark, served=sorted(set(served)))
        """,
        'after_ready="fail"',
    )

    assert found["raised"] == [*["CompiledAfterReady"] * 3, [5, 5]]
    assert (found["late"], found["counted"]) == (0, {})
    assert len(found["served"]) == 1
