"""Outages of services: hangs, errors, slowness, crashes, traffic that stops."""

from dataclasses import replace

from jaxmon import catalog
from tests.alerts.outages.doing import IDLE, Foreign, Memory, Requests, hung
from tests.alerts.outages.outage import START, Collection, page, ticket
from tests.alerts.outages.world import Target, World


SERVING = Collection()
outage = SERVING.outage

_FEW = catalog.REQUEST_SECONDS.few
_WITHOUT = (0.05, 0.1, 0.3, 0.5, 1.0, 5.0, 30.0)
_ROUTE = {"job": "web", "route": "/generate"}
_REST = 45.0


def _one_of(world: World, number: int, *phases: tuple[float, Requests]) -> None:
    """Let one pod of a service of so many live through *phases*, the others not."""
    for pod in world.pods("web", number):
        pod.run(START, Requests())
        for minutes, does in phases if pod.labels["pod"] == "web-0" else ():
            pod.run(minutes, does)
        if pod.labels["pod"] != "web-0":
            pod.run(_REST, Requests())


def _rarely(
    pod: Target,
    minutes: float,
    route: str = "/generate",
    *,
    seconds: float = 0.1,
    error: float = 0.0,
) -> None:
    """Let a pod get one request every five minutes."""
    quiet = Requests(route=route, rate=0.0, busy=0.0, oldest=0.0)
    for _ in range(round(minutes / 5)):
        pod.run(0.5, replace(quiet, rate=2.0, seconds=seconds, error=error))
        pod.run(4.5, quiet)


@outage(
    "One of ten replicas hangs, and its callers leave after 30 s",
    page(20, **_ROUTE),
    ticket(20, job="web", pod="web-0"),
)
def one_hangs(world: World, *, broken: bool) -> None:
    """The twin's callers leave one replica after two seconds, on their own whim."""
    left = Requests(left=0.3, wait=2.0)
    _one_of(world, 10, (_REST, hung(wait=30.0) if broken else left))


@outage(
    "One of ten replicas hangs, and its callers stay",
    page(20, **_ROUTE),
    ticket(20, job="web", pod="web-0"),
)
def one_hangs_callers_stay(world: World, *, broken: bool) -> None:
    """The twin has one request that takes four minutes, as a long one does."""
    long = Requests(busy=2.0, oldest=30.0, oldest_rise=60.0)
    phases = ((4.0, long), (_REST - 4, Requests()))
    _one_of(world, 10, *(((_REST, hung()),) if broken else phases))


@outage(
    "One of three replicas hangs behind a load balancer that cuts at 300 s",
    page(20, **_ROUTE),
    ticket(20, job="web", pod="web-0"),
)
def one_hangs_cut_at_300(world: World, *, broken: bool) -> None:
    """The twin's requests take a second."""
    phases = ((5.0, hung()), (_REST - 5, hung(wait=300.0)))
    _one_of(world, 3, *(phases if broken else ((_REST, Requests()),)))


@outage(
    "70 % of the callers of a route leave after 20 s",
    page(10, **_ROUTE),
)
def most_leave(world: World, *, broken: bool) -> None:
    """The twin's callers leave after two seconds: closed tabs, new keystrokes."""
    for pod in world.pods("web", 3):
        pod.run(START, Requests())
        pod.run(_REST, Requests(left=0.7, wait=20.0 if broken else 2.0))


@outage(
    "One of twenty replicas takes 2 s, the others 0.1 s",
    ticket(40, job="web", pod="web-0"),
    minutes=90.0,
    tickets="WarmLatency",
)
def one_slow(world: World, *, broken: bool) -> None:
    """All replicas of the twin take 0.1 s."""
    for pod in world.pods("web", 20):
        slow = broken and pod.labels["pod"] == "web-0"
        pod.run(START, Requests())
        pod.run(60, Requests(seconds=2.0 if slow else 0.1))


@outage(
    "A route whose requests always take 4 s, and no threshold of the site",
    ticket(60, **_ROUTE),
    start=0.0,
    tickets="WarmLatency",
    minutes=90.0,
)
def always_slow(world: World, *, broken: bool) -> None:
    """The twin takes 0.1 s."""
    for pod in world.pods("web", 2):
        pod.run(90, Requests(seconds=4.0 if broken else 0.1))


@outage(
    "Relabelling drops the bucket of the objective",
    ticket(45, job="web", le="0.2"),
    start=0.0,
)
def bucket_dropped(world: World, *, broken: bool) -> None:
    """The twin has every bucket."""
    for pod in world.pods("web", 2):
        pod.run(75, Requests(buckets=_WITHOUT if broken else None))


@outage(
    "An objective's bucket is not among those of `few_buckets`",
    ticket(45, job="web", le="0.5"),
    start=0.0,
    objectives=("own-latency",),
)
def few_buckets(world: World, *, broken: bool) -> None:
    """The twin exports all buckets."""
    for pod in world.pods("web", 2):
        buckets = _FEW if broken else None
        pod.run(75, Requests(route="/own", buckets=buckets))


@outage(
    "A foreign server, which writes its bounds as integers, becomes slow",
    page(20, job="legacy", handler="/predict"),
    objectives=("foreign-latency",),
)
def foreign_slow(world: World, *, broken: bool) -> None:
    """
    The twin stays fast: `le="1"` is the bound of 1 s.

    Half of the requests are slow, ten times what the budget allows: less than 14.4, so
    what pages is three times the pace over an hour, after 18 minutes of a good hour. By
    then, a 240th of the month's budget is spent.
    """
    for pod in world.pods("legacy", 2, sidecar=False):
        pod.workers.clear()
        pod.run(START, seen=(Foreign(),))
        pod.run(_REST, seen=(Foreign(slow=0.5 if broken else 0.0),))


@outage(
    "Every request of a quiet route with an objective without minimums is slow",
    page(75, job="quiet", route="/quiet"),
    objectives=("quiet-latency",),
    minutes=120.0,
)
def quiet_slow(world: World, *, broken: bool) -> None:
    """Of the twin's requests, a single one is slow: a page for it would be noise."""
    pod = world.pod("quiet", "quiet-0")
    _rarely(pod, START, route="/quiet")
    _rarely(pod, 5 if not broken else 90, route="/quiet", seconds=2.0)
    if not broken:
        _rarely(pod, 85, route="/quiet")


@outage(
    "A quiet route that gets twelve requests an hour fails them all",
    page(45, **_ROUTE),
    minutes=90.0,
)
def quiet_fails(world: World, *, broken: bool) -> None:
    """Of the twin's requests, one fails."""
    pod = world.pod("web", "web-0")
    _rarely(pod, START)
    _rarely(pod, 60 if broken else 5, error=1.0)
    if not broken:
        _rarely(pod, 55)


@outage("Every replica fails every request", page(5, **_ROUTE), minutes=90.0)
def all_fail(world: World, *, broken: bool) -> None:
    """One request in 5,000 of the twin's fails."""
    for pod in world.pods("web", 3):
        pod.run(START, Requests())
        pod.run(60, Requests(error=1.0 if broken else 0.0002))


@outage(
    "Every replica fails every request, after six good hours",
    page(5, **_ROUTE),
    minutes=420.0,
    start=360.0,
    slow=True,
)
def all_fail_in_the_evening(world: World, *, broken: bool) -> None:
    """One request in 5,000 of the twin's fails."""
    for pod in world.pods("web", 3):
        pod.run(360, Requests())
        pod.run(60, Requests(error=1.0 if broken else 0.0002))


@outage("Every replica hangs, and callers stay", page(10, **_ROUTE))
def all_hang(world: World, *, broken: bool) -> None:
    """The twin has no traffic."""
    for pod in world.pods("web", 3):
        pod.run(START, Requests())
        pod.run(_REST, hung() if broken else Requests(rate=30.0))


@outage(
    "0.5 % of requests fail",
    page(50, **_ROUTE),
    minutes=90.0,
    tickets="RequestError",
)
def some_fail(world: World, *, broken: bool) -> None:
    """0.02 % of the twin's fail."""
    for pod in world.pods("web", 3):
        pod.run(START, Requests(rate=600.0))
        pod.run(60, Requests(rate=600.0, error=0.005 if broken else 0.0002))


@outage("Traffic stops at a healthy service", page(20, job="web"))
def traffic_stops(world: World, *, broken: bool) -> None:
    """The twin's traffic falls in the evening, to a tenth within an hour."""
    for pod in world.pods("web", 5):
        pod.run(START, Requests(rate=120.0))
        if broken:
            pod.run(_REST, IDLE)
            continue
        for rate in (80.0, 40.0, 12.0):
            pod.run(_REST / 3, Requests(rate=rate))


@outage(
    "One of three replicas crashes after each first request",
    ticket(25, job="web", pod="web-0"),
)
def crash_loop(world: World, *, broken: bool) -> None:
    """The twin's replica crashes once."""
    first, *others = world.pods("web", 3)
    for pod in others:
        pod.run(START + _REST, Requests())
    first.run(START, Requests())
    for _ in range(18 if broken else 1):
        first.restart()
        first.run(1.5, IDLE)
        first.run(1.0, Requests(rate=2.0))
    first.run(_REST - 2.5 * (18 if broken else 1), Requests())


@outage(
    "One of two hundred processes crashes, again and again",
    ticket(25, job="web", instance="gpu-0:9467", worker="7"),
    slow=True,
)
def one_of_200(world: World, *, broken: bool) -> None:
    """The twin's process crashes once."""
    for number in range(25):
        host = world.host("web", f"gpu-{number}", 8)
        host.run(START, Requests(rate=6.0))
        if number:
            host.run(_REST, Requests(rate=6.0))
            continue
        for _ in range(18 if broken else 1):
            host.restart("7")
            host.run(2.5, Requests(rate=6.0), others={"7": (IDLE,)})
        host.run(_REST - 2.5 * (18 if broken else 1), Requests(rate=6.0))


@outage(
    "Four replicas are killed for memory, one after the other",
    ticket(35, job="web"),
    minutes=90.0,
)
def killed_in_turn(world: World, *, broken: bool) -> None:
    """The twin's replicas are restarted in order, and finish their requests."""
    for number, pod in enumerate(world.pods("web", 4)):
        before, down = START + 10.0 * number, 1.0
        memory = Memory(28.0, rise=3.0 if broken else 0.0)
        pod.run(before, Requests(), memory)
        if broken:
            pod.crash()
            pod.run(down, dead={"0": ""})
        else:
            pod.run(down, finished=("0",))
        pod.restart(crashed=False)
        pod.run(90 - before - down, Requests(), Memory(10.0))


@outage("A deployment whose new pods fail every request", page(10, **_ROUTE))
def bad_deployment(world: World, *, broken: bool) -> None:
    """The twin's new pods serve."""
    for number in range(4):
        gone = START + 2.0 * number
        old = world.pod("web", f"web-a{number}")
        old.run(gone, Requests())
        new = world.pod("web", f"web-b{number}", at=gone - 1.5)
        new.run(1.0, IDLE)
        error = 1.0 if broken else 0.0
        new.run(START + _REST - gone + 0.5, Requests(error=error))


@outage("Blue is removed, and green never comes up", page(15))
def blue_green(world: World, *, broken: bool) -> None:
    """The twin's green takes the traffic over."""
    for number in range(3):
        blue = world.pod("web-blue", f"web-blue-{number}")
        blue.run(START, Requests())
        if not broken:
            green = world.pod("web-green", f"web-green-{number}", at=START - 5)
            green.run(5.0, IDLE)
            green.run(_REST, Requests())


@outage("Every pod of a service is evicted", page(15, job="web"))
def all_evicted(world: World, *, broken: bool) -> None:
    """The twin's pods are scaled down for the night, after the last request."""
    for pod in world.pods("web", 4):
        if broken:
            pod.run(START, Requests())
            continue
        for rate in (60.0, 20.0, 2.0):
            pod.run(START / 4, Requests(rate=rate))
        pod.run(START / 4, IDLE)
        pod.run(4.0, finished=("0",))


@outage("A network partition hides every pod of a service", page(10, job="web"))
def partition(world: World, *, broken: bool) -> None:
    """The twin's pods miss two scrapes."""
    for pod in world.pods("web", 3):
        pod.run(START, Requests())
        pod.fail(_REST if broken else 1.0)
        if not broken:
            pod.run(_REST - 1, Requests())
