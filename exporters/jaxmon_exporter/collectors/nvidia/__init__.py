"""
NVIDIA GPUs, read through NVML: two collectors, `collector` and `gpm`.

`collector` finds the devices and reads the values listed in the tables of `calls` and
`fields`, MIG devices (`mig`) and Xid errors (`xids`): a new metric is a row of a table.
`gpm` reads GPU activity. Both open NVML by `session`, represent a GPU as a `device`,
and classify NVML's errors by `codes`.
"""
