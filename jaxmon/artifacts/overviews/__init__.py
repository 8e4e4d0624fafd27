"""
What dashboards show of many processes, recorded: sums, extremes and quantiles by
service or host.

A graph over six hours evaluates its query 720 times for each viewer. Of 1,000 processes
that is minutes of CPU; of what was recorded of them, milliseconds. What is recorded has
no function, device or worker to choose: those are for boards about one service.
"""
