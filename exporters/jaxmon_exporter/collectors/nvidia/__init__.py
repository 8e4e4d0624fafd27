"""
NVIDIA GPUs, read through NVML: two collectors, `collector` and `gpm`.

`collector` finds the devices and reads the values listed in the tables of `calls` and
`fields`, and Xid errors: a new metric is a row of a table. `gpm` reads GPU activity.
Both open NVML by `session` and represent a GPU, or a MIG device, as a `device`.
"""
