"""One process of a service that does worse than its siblings."""

from __future__ import annotations

from jaxmon.limits import Limits
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import A_PROCESS, Alert
from jaxmon.symptoms.symptom import Symptom


def _replica_hangs(limits: Limits) -> Alert:
    window = limits.hang_after
    left = recorded.left(window, limits) >= limits.hung_requests
    answering = recorded.replica_answered(window).max(*recorded.ROUTE)
    hanging = (recorded.hung(window, limits) > 0).or_(left)
    return Alert(
        # Where all hang, it is the route.
        expr=hanging.and_(answering, *recorded.ROUTE),
        summary=(
            f"{A_PROCESS}has answered no request to route {{{{ $labels.route }}}} for "
            f"{window}; callers wait, or have waited and left."
        ),
    )


def _replica_slow(limits: Limits) -> Alert:
    window = limits.replica_slow_for
    return Alert(
        expr=recorded.times_siblings(window, limits) > limits.replica_slow,
        for_=window,
        summary=(
            f"{A_PROCESS}takes {{{{ $value | humanize }}}} times as long as the median "
            "process for requests to route {{ $labels.route }}."
        ),
    )


_ALERT, _OTHERS = "JaxmonReplicaSlow", "a host does not see the other replicas"
SYMPTOMS = (
    Symptom(
        *("replica_hangs", "F8", "One process of a service answers no request."),
        rule=(_ALERT, _replica_hangs),
        missing=_OTHERS,
    ),
    Symptom(
        *("replica_slow", "F7", "One process of a service is slower than the others."),
        rule=(_ALERT, _replica_slow),
        missing=_OTHERS,
    ),
)
