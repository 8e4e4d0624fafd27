"""
Where the sidecar's figures come from: one module or package for each source.

Start in `registry`, which lists them, with the options that each is made of. What a
collector is stands in `jaxmon_exporter.collecting`; `jaxmon_exporter.polling` calls it.
In a package, `collector` is the class that is polled, and the way in.
"""
