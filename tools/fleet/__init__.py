"""
A fleet of processes made from one real page, and what rules cost on it.

    python -m tools.fleet --help

Data flows one way: `recording` (pages of real programs) → `templates` (what each series
does) → `layout` (who exists when) → `series` (values) → `remote` or `targets` (into a
real Prometheus) → `costs` and `replay` (what rules cost there, and what fires).
"""
