"""The verbs of the command line, one module each.

The docstring of a command is its help. What is wrong with what was given is a `ConfigurationError`, any other failure
another `GatehouseError`: `gatehouse.cli.main.main` prints it and ends with its exit code.
"""
