"""
``jaxmon top``: a screen that says whether users are all right, and which process not.

`command` reads on a thread and obeys keys, `state` is what keys change, `views` make
lines of both, `terminal` draws what changed of them, with the standard library only.
"""
