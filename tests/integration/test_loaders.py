"""Loops over loaders with worker processes, as those of PyTorch and Grain have them."""

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


PROGRAM = """
import json, multiprocessing, sys, time
from jaxmon import threads
import jax, jaxmon
from tests.helpers.agents import SILENT, samples

WORKERS, BATCHES = 2, 12
agent = jaxmon.instrument(**SILENT)
jax.jit(lambda x: x + 1)(1.0)  # as a program that has been training

class Loader:
    def __init__(self, method):
        self.context = multiprocessing.get_context(method)
        self.started = []

    def __iter__(self):
        began = time.perf_counter()
        queue = self.context.Queue()
        workers = [self.context.Process(target=work, args=(queue, number))
                   for number in range(WORKERS)]
        for one in workers:
            one.start()
        self.started.append(time.perf_counter() - began)
        return self.batches(queue, workers)

    def batches(self, queue, workers):
        for _ in range(BATCHES):
            began = time.perf_counter()
            found = queue.get()
            waits.append(time.perf_counter() - began)
            seen.append(found)
            yield found
        for one in workers:
            one.join()
            codes.append(one.exitcode)

def work(queue, number):
    for batch in range(BATCHES // WORKERS):
        time.sleep(0.01)
        ours = [t.name for t in threads.running()]
        queue.put([number, batch, ours, str(agent)])

waits, seen, codes = [], [], []
loader = Loader("fork")
began = time.perf_counter()
for epoch in range(2):
    for batch in jaxmon.steps(loader):
        pass
spent = time.perf_counter() - began
print(json.dumps({
    "inside": sum(waits) + sum(loader.started), "spent": spent, "seen": seen,
    "codes": codes, "page": {s: v for s, v in samples(agent).items()
                             if s.startswith(("jaxmon_data", "jaxmon_step",
                                              "jaxmon_internal"))}}))
"""


@pytest.mark.ground_truth
def test_forked_workers_have_no_agent_and_their_loop_waits_for_them() -> None:
    """
    The wait is between what the loader measures inside and the time of the loop,
    including the start of the workers; these run without our threads and end well.
    """
    ended = run_preloaded("-c", PROGRAM, cwd=ROOT).ok()
    found = ended.json()

    page = found["page"]
    assert page['jaxmon_steps_total{loop="train"}'] == 24
    waited = page['jaxmon_data_wait_seconds_total{loop="train"}']
    assert found["inside"] <= waited <= found["spent"]
    assert [one[2] for one in found["seen"]] == [[]] * 24
    assert not any("running" in one[3] for one in found["seen"])
    assert found["codes"] == [0] * 4
    assert "Traceback" not in ended.err  # JAX warns of the fork itself
    assert not any(v for s, v in page.items() if s.startswith("jaxmon_internal"))
