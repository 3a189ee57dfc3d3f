"""A port for a server that is started by its number."""

import random
import socket

# Below the range from which Linux takes the ports of outgoing connections (`net.ipv4.ip_local_port_range`), so that
# no connection of another test takes the port in the meantime, and no client that tries again meets itself there.
_PORTS = range(10_000, 32_768)
_random = random.SystemRandom()


def free_port() -> int:
    """A port of this machine at which nobody listens now, drawn at random, so that tests side by side get others."""
    while True:
        port = _random.choice(_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
