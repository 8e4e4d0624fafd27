"""
The processes of a job: which rank the others wait for, which is slow or failed first.

Pure functions of what ranks report, which is not trusted: it comes from other machines.
Their clocks may differ by minutes, so they report ages, no times of day.
"""
