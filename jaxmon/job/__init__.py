"""
Whether the processes of a job make progress together: which rank the others wait for,
where that is, and since when; which ranks make it slower; and if the job has failed,
which rank was the first.

Pure functions of what the ranks report, which is not trusted: it comes from other
machines. Their clocks may differ by minutes, so they report ages, no times of day.
"""
