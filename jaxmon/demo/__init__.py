"""
Two small programs for `jaxmon demo`: a training loop and a model server.

They are written as users would write them, and run as separate processes: ``python -m
jaxmon.demo.train``, ``python -m jaxmon.demo.serve``.
"""
