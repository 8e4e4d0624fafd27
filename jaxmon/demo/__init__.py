"""
Two small programs for `jaxmon demo`: a training loop and a model server.

They are written as a user would write them, and run as processes of their own:
``python -m jaxmon.demo.train``, ``python -m jaxmon.demo.serve``.
"""
