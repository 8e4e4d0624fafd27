"""
Everything that can be wrong, once.

A module for each family of symptoms: how they are judged, by the facts of a process, by
those of a host, and by an alert; the same limits in all three. `table` has them all,
and findings, answers, alerts and ``docs/symptoms.md`` are made of it.
"""
