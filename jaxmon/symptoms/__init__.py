"""
Everything that can be wrong, once: a module for each family, with how it is judged by
the facts of a process, by those of a host, and by an alert. `table` has them all.
"""
