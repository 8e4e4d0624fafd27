"""
``jaxmon top``: a screen that says whether users are all right, and which process not.

`command` reads on a thread of its own and obeys keys, `state` is what keys change,
`views` make lines out of both, and `terminal` draws what changed of them. Needs the
standard library only: what is on call has it everywhere, and lines that did not change
cost no bytes.
"""
