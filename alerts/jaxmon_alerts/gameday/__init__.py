"""
Programs that break, and what alerts say of it.

A game day starts `children`, among them the `stack` of Prometheus and Alertmanager.
Each of the `scenarios` has a `workload` of `programs`, which a `drill` takes from
healthy to broken and back; `site` is where its alerts are seen.
"""
