"""Descriptors: a program that has none left, and one that closes those of jaxmon."""

import json

from tests.helpers.processes import ROOT


LATE = """
import asyncio, logging, os, resource
import jax, jaxmon
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass

def program():
    agent = jaxmon.instrument(port=None, socket=False)
    waiting = jaxmon.queue("waiting", lambda: 1)
    waiting.set(3)
    found = []
    for number in jaxmon.steps([1, 2], loop="train", items=1):
        with jaxmon.request("predict") as request, jaxmon.activity("predict"):
            request.outcome = "success"
            jaxmon.batch("predict", size=1, capacity=2, requests=[request])
            found.append(number)
    found += jaxmon.steps(iterable=[3])
    jaxmon.log_values({"loss": 1.0}, step=1)
    @jaxmon.serverless
    def handler(event, context):
        return event
    @jaxmon.serverless(route="other")
    def other(event, context):
        return event
    @jaxmon.request("predict")
    async def predict(number):
        async with jaxmon.request("inner"):
            return number
    waited = predict(6)
    try:
        waited.send(None)
    except StopIteration as end:
        found += [handler(4, None), other(5, None), end.value]
    jaxmon.flush(0)
    series = [name for family in agent.collect() for name, _ in family.samples]
    running = bool(agent.running)
    waiting.close()
    jaxmon.uninstrument()
    return running, found, any("steps_total" in name for name in series)

results = [program()]
for number in held:
    os.close(number)
print([*results, program()])
"""


def test_what_was_never_loaded_does_nothing_without_descriptors(python_script):
    """
    Each name is loaded with its first use, which needs a descriptor. Without one, the
    program goes on without that name, which a line says, and has it later.
    """
    result = python_script(LATE).ok()
    numbers = [1, 2, 3, 4, 5, 6]
    assert result.out == f"{[(False, numbers, False), (True, numbers, True)]}\n"
    lines = result.err.splitlines()
    assert len(lines) == len(set(lines)) > 5
    for line in lines:
        assert line.startswith("jaxmon."), line
        assert "does nothing: " in line
        assert "Too many open files" in line


def test_descriptors_of_the_program_are_its_own(python_script, run_dir):
    """
    Whoever closes numbers that jaxmon has, and opens files, sockets or pipes in their
    place, finds them as they were opened. jaxmon says what it lost, and is seen again;
    the record of the process is right, whether that was noticed before its end or not.
    """
    source = "from tests.programs.closing import main; main()"
    # A thread of ours that reads a file at that moment closes its number, whosever it
    # is by then, in one of hundreds: then, two further runs must be in order.
    for number, attempt in enumerate((0, 1, 1)):
        (run_dir / str(number)).mkdir(mode=0o700)
        places = {"PYTHONPATH": ROOT, "JAXMON_RUN_DIR": run_dir / str(number)}
        environ = {name: str(place) for name, place in places.items()}
        result = python_script(source, env=environ).ok()
        found = [json.loads(line) for line in result.out.splitlines()]
        damaged = any(one["damaged"] for one in found)
        if not attempt and not damaged:
            break
        assert not attempt or not damaged, found
    *logs, after = result.err.split("NEXT\n")

    assert after == ""
    for number, (one, said) in enumerate(zip(found, logs, strict=True), start=1):
        served = one["way"] == "closed_in_a_child"
        assert one["damaged"] == [], one
        assert one["results"] == [2.0, 3.0, 2.0], one
        assert one["record"] == [number, 0, "finished"], one
        assert one["left"] == ["agent-0.end"]
        lines = sorted(said.splitlines())
        assert len(lines) == (0 if served else 2), said
        if not served:
            assert lines[0].startswith("jaxmon failed in descriptors: "), said
            assert "port" in lines[0]
            assert lines[1].startswith("the program has closed jaxmon's descriptors")
            assert ("recreated" in lines[1]) or not one["wait"]
