"""
The ``jaxmon`` command: one module or package per subcommand, loaded when it is called.

A command module has a click object named ``command`` and is listed in
`jaxmon.cli.main.COMMANDS`. It parses, calls and prints; results go to stdout,
diagnostics to stderr; failures are raised as `jaxmon.errors.CommandError`.
"""
