"""
Small programs to observe and to break, and the scenarios in which they break.

The programs are written as users would write them, and run as separate processes:
``python -m jaxmon_alerts.gameday.programs.train``. `scenarios` has definitions only.
"""
