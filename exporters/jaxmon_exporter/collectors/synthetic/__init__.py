"""
A fleet of accelerators that do not exist, for `--demo`.

`collector` simulates its load over time, `gpus` what GPUs report beyond load and
memory.
"""
