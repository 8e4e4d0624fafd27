"""
What developers use before production.

`baseline` compares runs, `profile` reads traces by line, `warming` compiles ahead for
the signatures of a service, for which `buckets` proposes shapes, and `doctor` finds
what will not work in an environment. Commands load it; no agent or sidecar does.
"""
