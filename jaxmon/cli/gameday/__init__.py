"""
``jaxmon demo`` and ``jaxmon gameday``: programs that break, and what alerts say of it.

`demo` shows a `scene` of two programs, one of which may break; `command` goes through
scenarios, and `results` is what came of it. Both show on a `screen` what changes.
"""
