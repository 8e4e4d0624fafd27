"""
What a program says about itself: requests, batches, queues, steps, activities.

`requests`, `batches`, `queues`, `steps` and `activities` are what users call; `figures`
is what they record to. `recorder` says who records: the agent of this process, or
nobody, and then a mark costs next to nothing. Imports no JAX.
"""
