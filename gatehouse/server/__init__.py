"""The registry over HTTP: the functions of the command line for programs, and pages for people."""
