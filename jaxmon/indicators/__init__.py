"""
Application markers: requests, batches, queues, steps, activities.

`requests`, `batches`, `queues`, `steps` and `activities` are called by users; `figures`
is where they record. `recorder` is the recording agent of this process, if any; without
one, markers cost next to nothing. Imports no JAX.
"""
