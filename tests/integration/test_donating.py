"""Re-runs of a sharded training step that donates its state, on four CPU devices."""

from typing import Any

import jax
import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


PROGRAM = ROOT / "tests" / "programs" / "donating.py"
FOUR_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

pytestmark = [
    pytest.mark.ground_truth,
    pytest.mark.skipif(
        jax.__version_info__ < (0, 6), reason="this JAX cannot copy on devices"
    ),
]


@pytest.fixture(scope="module")
def seen() -> Any:
    """Return what the program printed."""
    return run_preloaded(str(PROGRAM), env=FOUR_DEVICES).json()


def test_training_is_the_same_with_re_runs(seen: Any) -> None:
    """
    The state after 23 steps has the same bits, each state was donated, no array is
    left over, and calls, misses, compiles and transfers are those of the program.
    """
    plain, checked = seen["without"], seen["with"]
    assert checked["bits"] == plain["bits"]
    assert checked["deleted"]
    # Copies would be nine; a sampled call may hold its loss.
    assert checked["arrays"] <= 1
    assert checked["counts"] == plain["counts"] == [20, 0, 0, 0]
    assert checked["errors"] == 0
    assert plain["checks"] == {}


def test_a_healthy_step_passes(seen: Any) -> None:
    """A sharded, donating step, and a sharded one that donates nothing, are re-run."""
    passed = {
        "checks": {"passed": 3, "failed": 0},
        "deviation": 0,
        "gradient_checks": {},
    }
    assert seen["with"]["checks"] == passed
    assert seen["faults"]["spread"] == {**passed, "checks": {"passed": 1, "failed": 0}}


def test_a_bit_that_flips_once_names_its_device(seen: Any) -> None:
    """One flipped bit in the memory of one device: function, output and device."""
    found = seen["faults"]
    assert found["transient"]["devices"] == {"2": 1}
    assert found["transient"]["checks"]["failed"] == 1
    function, output = found["event"].splitlines()
    assert function.startswith("__main__.adam gave different outputs")
    assert "['w']: float32[16, 4] on device 2 only: 1 of 64 elements" in output
    assert list(found["series"].values()) == [0, 0, 1, 0]


def test_replicas_that_differ_name_the_device_of_the_minority(seen: Any) -> None:
    """A parameter that is wrong on one device is so in both runs: replicas show it."""
    _, *outputs = seen["faults"]["replica"].splitlines()
    [bias] = [line for line in outputs if "['params']['b']" in line]
    assert "float32[4] on device 2 only, between its replicas: 1 of 4" in bias
    assert seen["faults"]["seen"]["devices"] == {"2": 2}


def test_nothing_is_copied_near_the_limit_of_one_device(seen: Any) -> None:
    """A fifth of each device's memory stays free, or nothing is copied at all."""
    found, copies = seen["faults"]["full"]
    assert found["not_repeated"] == "little_memory"
    assert copies == 0


def test_another_state_is_not_re_run(seen: Any) -> None:
    """Arrays that the call before did not return were not copied in time."""
    assert seen["faults"]["another"] == "donates_others"


def test_copies_are_freed_if_no_call_comes(seen: Any) -> None:
    """After a minute the copies, one of each output, are gone."""
    assert seen["faults"]["late"] == ["not_called_again", 9]


def test_callbacks_are_refused(seen: Any) -> None:
    """A donating program that calls Python is never re-run."""
    assert seen["faults"]["calling"] == {"not_repeated": "effects"}
    assert seen["faults"]["errors"] == 0
