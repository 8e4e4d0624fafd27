"""
``jaxmon demo`` and ``jaxmon gameday``: programs that break, and what alerts say of it.

`demo` shows a `scene` of two programs, one of which may break; `command` goes through
scenarios. Both show what changes, in place.
"""
