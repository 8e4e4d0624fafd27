"""
Type-checked PromQL from catalogue metrics.

A counter can only be rated, a histogram only quantiled or bucket-counted, a gauge only
read; labels must be the metric's own or the scraper's; a bucket bound must exist. The
result is text that Prometheus 2.42 can parse.

    >>> from jaxmon.catalog import JIT_CALLS
    >>> str(counter(JIT_CALLS, re("job", "$job")).rate("5m").sum("function"))
    'sum by (function) (rate(jaxmon_jit_calls_total{job=~"$job"}[5m]))'
"""

from __future__ import annotations

from jaxmon.promql.expressions import PLACE as PLACE
from jaxmon.promql.expressions import RATE_INTERVAL as RATE_INTERVAL
from jaxmon.promql.expressions import Expr as Expr
from jaxmon.promql.expressions import RecordedSeries as RecordedSeries
from jaxmon.promql.expressions import call as call
from jaxmon.promql.expressions import number as number
from jaxmon.promql.expressions import ratio as ratio
from jaxmon.promql.expressions import time as time
from jaxmon.promql.series import Counter as Counter
from jaxmon.promql.series import HistogramQuery as HistogramQuery
from jaxmon.promql.series import Matcher as Matcher
from jaxmon.promql.series import alerts as alerts
from jaxmon.promql.series import alerts_since as alerts_since
from jaxmon.promql.series import counter as counter
from jaxmon.promql.series import eq as eq
from jaxmon.promql.series import gauge as gauge
from jaxmon.promql.series import gauge_changes as gauge_changes
from jaxmon.promql.series import gauge_over as gauge_over
from jaxmon.promql.series import gauge_slope as gauge_slope
from jaxmon.promql.series import histogram as histogram
from jaxmon.promql.series import ne as ne
from jaxmon.promql.series import re as re
from jaxmon.promql.series import recorded as recorded
from jaxmon.promql.series import recorded_over as recorded_over
from jaxmon.promql.series import records as records
from jaxmon.promql.series import up as up
