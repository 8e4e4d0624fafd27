"""
``jaxmon gameday``: provokes faults and checks that each brings its alert, and ends it.

`command` builds a `site`, which is where alerts are seen, and gives each scenario a
`workload` of its own. A `drill` takes it from healthy to broken and back; `schedule`
runs several at a time. `view` shows them, as `lines` or on a `screen`.
"""
