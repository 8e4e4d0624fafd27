"""
From metric families to text, and back.

`families` is the data, `histogram` makes some, `encode` writes the two text formats of
Prometheus, `parse` reads one of them, and `plausible` refuses impossible figures.
"""
