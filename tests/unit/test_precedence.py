"""Which of two collectors exports a metric."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon_exporter.polling import (
    CollectorUnavailable,
    PollerGroup,
    instance,
    unserved,
)
from tests.helpers.processes import until


OURS, OTHER = "GPU-1", "GPU-2"
SM = catalog.GPU_SM_ACTIVE_RATIO
TEMPERATURE = catalog.ACCELERATOR_TEMPERATURE_CELSIUS


def info(uuid: str, model: str = "H100") -> Family:
    """Return the identity of a GPU."""
    return gauge(
        catalog.ACCELERATOR_INFO, 1, uuid, 0, "nvidia", model, "580", "0000:1a:00.0"
    )


def names(families: Iterable[Family]) -> list[str]:
    """Return the series of *families*."""
    return [name for family in families for name, _ in family.samples]


def test_gap_is_filled_and_nothing_else() -> None:
    """A series that is on the page stays ours; its sibling that is not comes along."""
    first = [info(OURS), gauge(TEMPERATURE, 40, OURS, "gpu")]
    second = [
        gauge(TEMPERATURE, 41, OURS, "gpu"),
        gauge(TEMPERATURE, 60, OURS, "memory"),
        gauge(SM, 0.5, OURS),
    ]
    assert [one for family in unserved(first, second) for one in family.samples] == [
        (series(TEMPERATURE, OURS, "memory"), 60),
        (series(SM, OURS), 0.5),
    ]


def test_series_that_comes_twice_counts_once() -> None:
    """Of what the second says twice the first holds."""
    found = unserved([], [gauge(SM, 0.1, OURS), gauge(SM, 0.2, OURS)])
    assert [family.samples for family in found if family.samples] == [
        [(series(SM, OURS), 0.1)]
    ]


def test_device_has_one_identity() -> None:
    """A second identity under another name would break every join on the first."""
    assert names(unserved([info(OURS)], [info(OURS, "H100 PCIe")])) == []
    assert names(unserved([], [info(OURS)])) == names([info(OURS)])


@pytest.mark.parametrize("all_gpus", [False, True])
def test_gpus_of_others_stay_out_unless_asked_for(*, all_gpus: bool) -> None:
    """In a container with one of its host's GPUs only that one's figures are taken."""
    second = [info(OTHER), gauge(SM, 0.5, OTHER), gauge(SM, 0.6, OURS)]
    found = names(unserved([info(OURS)], second, all_gpus=all_gpus))
    assert (series(SM, OTHER) in found) is all_gpus
    assert series(SM, OURS) in found


def test_without_a_driver_all_gpus_are_taken() -> None:
    """Where NVML names no GPU there is nothing to go by."""
    second = [info(OTHER), gauge(SM, 0.5, OTHER)]
    assert names(unserved([], second)) == names(second)


@pytest.mark.parametrize("all_rates", [False, True])
def test_rate_stands_back_where_a_counter_is(*, all_rates: bool) -> None:
    """Bytes per second are for GPUs without a byte counter."""
    rate = catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND
    first = [info(OURS), gauge(catalog.GPU_PCIE_TRANSMIT_BYTES, 7, OURS)]
    found = names(unserved(first, [gauge(rate, 5, OURS)], all_rates=all_rates))
    assert (series(rate, OURS) in found) is all_rates
    assert names(unserved([info(OURS)], [gauge(rate, 5, OURS)])) == [series(rate, OURS)]


def test_instances_get_the_names_of_their_devices() -> None:
    """What DCGM says of instance 3 is said of its MIG devices, and of nothing else."""
    mig = catalog.GPU_MIG_INFO
    first = [
        info(OURS),
        gauge(mig, 1, "MIG-a", OURS, "1g.10gb", "3", "0"),
        gauge(mig, 1, "MIG-b", OURS, "1g.10gb", "3", "1"),
        gauge(mig, 1, "MIG-c", OURS, "1g.10gb", "4", "0"),
    ]
    second = [
        gauge(SM, 0.5, instance(OURS, "3")),
        gauge(SM, 0.6, instance(OURS, "9")),
        gauge(TEMPERATURE, 30, instance(OTHER, "3"), "gpu"),
    ]
    assert names(unserved(first, second)) == [series(SM, "MIG-a"), series(SM, "MIG-b")]
    assert names(unserved([], second)) == []


def test_figures_about_no_device_come_along() -> None:
    """What a collector says of itself has no device."""
    errors = gauge(catalog.COLLECTOR_ERRORS, 1, "dcgm", "broken_line")
    assert names(unserved([info(OURS)], [errors])) == names([errors])


class Source:
    """A collector that serves what it is given, until it is given nothing."""

    interval = 0.01
    deadline = 60.0

    def __init__(self, name: str, *families: Family) -> None:
        self.name = name
        self.families = families
        self.may_look = threading.Event()
        self.may_look.set()

    def collect(self) -> Iterable[Family]:
        self.may_look.wait()
        if not self.families:
            reason = "gone"
            raise CollectorUnavailable(reason, reason)
        return self.families

    def close(self) -> None:
        pass


@pytest.fixture
def run() -> Iterator[Callable[..., PollerGroup]]:
    """Return a function that polls one collector of ours, and another."""
    with ExitStack() as stack:

        def start(first: Source, other: Source) -> PollerGroup:
            polling = PollerGroup([first], secondary=[other])
            polling.start()
            stack.callback(polling.stop)
            stack.callback(first.may_look.set)
            return polling

        yield start


def test_polling_never_serves_a_series_twice(run: Callable[..., PollerGroup]) -> None:
    """A figure changes hands when ours fails and when it is back, and is there once."""
    first = Source("nvml", info(OURS), gauge(SM, 0.1, OURS))
    polling = run(first, Source("dcgm", info(OURS), gauge(SM, 0.9, OURS)))
    found: set[float] = set()

    def settled(value: float) -> bool:
        samples = [one for family in polling.families() for one in family.samples]
        assert len({name for name, _ in samples}) == len(samples)
        here = dict(samples).get(series(SM, OURS))
        found.add(here or 0)
        return here == value

    until(lambda: settled(0.1), "our figure")
    kept, first.families = first.families, ()
    until(lambda: settled(0.9), "that of the other")
    first.families = kept
    until(lambda: settled(0.1), "our figure again")
    assert found <= {0, 0.1, 0.9}


def test_others_wait_until_we_have_looked(run: Callable[..., PollerGroup]) -> None:
    """Before our first poll it is unknown which GPUs are ours."""
    first = Source("nvml", info(OURS), gauge(SM, 0.1, OURS))
    first.may_look.clear()
    polling = run(
        first, Source("dcgm", gauge(SM, 0.8, OTHER), gauge(TEMPERATURE, 1, OURS, "gpu"))
    )
    until(lambda: polling.statuses()[1].success, "the other")
    assert not any("uuid=" in name for name in names(polling.families()))
    first.may_look.set()
    until(lambda: polling.statuses()[0].success, "ours")
    found = names(polling.families())
    assert series(TEMPERATURE, OURS, "gpu") in found
    assert series(SM, OTHER) not in found
