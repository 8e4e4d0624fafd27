"""
Jobs that use NCCL, from its RAS threads.

`collector` has `client` query them, now and then; `json_reply` and `text_reply` parse
what they return into a `report`; `progress` finds what does not move between two of
them.
"""
