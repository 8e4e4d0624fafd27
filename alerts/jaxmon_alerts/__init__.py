"""
Alerts: objectives, rules, routes, deploy windows, the weekly report and the game day.

`slo` reads a site's objectives; `rules` and `overviews` make documents of them and of
the catalogue: pure functions, without a clock or a network. `silences` and `weekly` ask
the servers of the site, and `gameday` breaks programs to see which alert reports it.
"""
