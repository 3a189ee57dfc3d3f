"""A training program that does nothing until it is stopped, or half a minute has passed."""

import signal


def main() -> None:
    """Wait for a signal that ends the process."""
    signal.alarm(30)
    signal.pause()
