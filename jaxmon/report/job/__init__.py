"""
Whether the processes of a job get on together: which rank the others wait for, where
that is, and since when; and if the job has failed, which rank was the first.

Pure functions of what the ranks report, which is not trusted: it comes from other
machines. Their clocks may differ by minutes, so they report ages, no times of day.
"""

from __future__ import annotations


SCHEMA = 1
"""
Schema version of ``/debug/rank`` and ``/job``, shared by writers and readers: raised
when newer output would mislead an older reader.
"""
