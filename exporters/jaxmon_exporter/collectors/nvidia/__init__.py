"""
NVIDIA GPUs, read through NVML: two collectors, `collector` and `gpm`.

`collector` finds the devices and reads of each what the tables in `calls` and `fields`
name, its MIG devices (`mig`) and its Xid errors (`xids`): a new figure is a row of a
table. `gpm` reads what the parts of a GPU are busy with. Both open NVML by `session`,
know a GPU as a `device`, and judge NVML's errors by `codes`.
"""
