"""The commands of the command line, grouped by noun.

The docstring of a command is its help. A wrong argument is a `ConfigurationError`, any other failure another
`GatehouseError`; `gatehouse.cli.main.main` prints it and exits with its code.
"""
