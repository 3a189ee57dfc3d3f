"""Launchers run training on this machine or on a cluster; this package also has what runs around the program."""
