"""
What a program says about itself: its requests, its steps, its activities.

`requests`, `steps` and `activities` are what users call; `routes`, `loops` and
`timeline` keep the figures. `current` says who records: the agent of this process,
or nobody, and then a mark costs next to nothing. Imports no JAX.
"""
