"""
The exam of the alerts: ``python -m tests.alerts.outages [NAME...]``.

Prints for each outage and its twin what should arrive and by when, what arrives, and
what is wrong. ``--real`` counts notifications by the real Alertmanager, in quick
motion; otherwise, a model of it does.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.alerts.outages.exam import OUTAGES, Answer, answers, together
from tests.alerts.outages.notifications import Notification
from tests.alerts.outages.outage import Notice, Outage
from tests.alerts.outages.replay import replay


_SHOWN = ("route", "handler", "pod", "instance", "worker", "uuid", "le", "long")


def main() -> None:
    """Print a table of the outages, and the totals."""
    options = argparse.ArgumentParser(prog="python -m tests.alerts.outages")
    options.add_argument("--real", action="store_true", help="use Alertmanager itself")
    options.add_argument("names", nargs="*", help="of outages; else all")
    given = options.parse_args()
    asked = [one for one in OUTAGES if not given.names or one.key in given.names]
    with ThreadPoolExecutor(4) as pool:
        found = [one for part in pool.map(answers, together(asked)) for one in part]
    counts = _real(found) if given.real else _modelled(found)
    _row("Outage", "Due", "Sent", "Pages", "Wrong", "Twin", "Pages of the twin")
    _row(*["---"] * 7)
    for outage in asked:
        broken, twin = (
            next(one for one in found if one.outage is outage and one.broken is kind)
            for kind in (True, False)
        )
        _row(
            f"{outage.key}: {outage.name}",
            "; ".join(map(_due, outage.due)),
            "; ".join(map(_sent(outage), _first(broken.notifications))),
            str(counts[broken.cluster, "page"]),
            "; ".join(broken.faults()),
            "; ".join(map(_sent(outage), _first(twin.notifications))),
            str(counts[twin.cluster, "page"]),
        )
    right = [one for one in found if one.broken and not one.faults()]
    quiet = [one for one in found if not one.broken and not one.faults()]
    paged = [counts[one.cluster, "page"] for one in found if one.broken]
    sys.stdout.write(
        f"\nRight: {len(right)} of {len(asked)} outages.\n"
        f"Quiet: {len(quiet)} of {len(asked)} twins.\n"
        f"Page notifications: {sum(paged)}, at most {max(paged)} for an outage.\n"
        f"More than one: {sum(number > 1 for number in paged)} outages.\n"
    )


def _modelled(found: list[Answer]) -> Counter[tuple[str, str]]:
    return Counter(
        (answer.cluster, one.receiver)
        for answer in found
        for one in answer.notifications
    )


def _real(found: list[Answer]) -> Counter[tuple[str, str]]:
    firings = [firing for answer in found for firing in answer.firings]
    end = round(max(answer.outage.minutes for answer in found) * 60)
    with tempfile.TemporaryDirectory(prefix="outages-") as directory:
        return replay(firings, Path(directory), end)


def _row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def _due(notice: Notice) -> str:
    labels = " ".join(f"{name}={value}" for name, value in notice.labels.items())
    lasting = ", lasting" if notice.lasting else ""
    return f"{notice.severity} within {notice.within:g} min {labels}{lasting}".strip()


def _first(sent: Iterable[Notification]) -> list[tuple[int, str, dict[str, str]]]:
    """Return each alert when it was first sent, with one of its label sets."""
    found: dict[tuple[str, str], tuple[int, str, dict[str, str]]] = {}
    for one in sent:
        for labels in map(dict, sorted(one.firing, key=sorted)):
            key = labels["alertname"], one.receiver
            found.setdefault(key, (one.at, one.receiver, labels))
    return list(found.values())


def _sent(outage: Outage) -> Callable[[tuple[int, str, dict[str, str]]], str]:
    def text(found: tuple[int, str, dict[str, str]]) -> str:
        at, receiver, labels = found
        minutes = at / 60 - outage.start
        shown = " ".join(f"{name}={labels[name]}" for name in _SHOWN if name in labels)
        return f"{receiver} {labels['alertname']} at {minutes:g} min {shown}".strip()

    return text


if __name__ == "__main__":
    main()
