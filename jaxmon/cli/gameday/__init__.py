"""
``jaxmon demo`` and ``jaxmon gameday``: programs that break, and what alerts say of it.

Both start `children`, among them the `stack` of Prometheus and Alertmanager, and show
on a `screen` what changes. `demo` shows a `scene` of two programs, one of which may
break. `command` gives each scenario a `workload` of its own, which a `drill` takes from
healthy to broken and back; `site` is where its alerts are seen, and `results` what came
of it.
"""
