"""
``jaxmon top``: a screen that says whether users are all right, and which process not.

`reader` reads on a thread of its own, `state` is what keys change, `host_view` and
`process_view` make lines out of both, and `terminal` draws what changed of them. Needs
the standard library only: what is on call has it everywhere, and lines that did not
change cost no bytes.
"""
