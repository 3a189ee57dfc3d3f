"""Opens the storage of studies that `GATEHOUSE_TUNING_STORAGE` names."""

import functools
import socket

import optuna

from gatehouse.errors import StoreError
from gatehouse.tuning.access.address import PROXY, STORAGE, named_url, refuse, require_form
from gatehouse.tuning.access.database import by_url

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_SECONDS = 3.0


def database() -> optuna.storages.BaseStorage | None:
    """The database that holds studies, or its proxy; None if they are in the artifact store.

    Raises:
        StoreError: if it cannot be opened.
    """
    url = named_url()
    return _opened(url) if url else None


def require_address(url: str) -> None:
    """Refuse what is no address of a database or of its proxy; neither is asked.

    Raises:
        StorageAddressError: saying why, without a password.
    """
    if url.startswith(PROXY):
        from gatehouse.tuning.access.proxy import proxied

        proxied(url)
    else:
        require_form(url)


def require_server(url: str) -> None:
    """Refuse the address of a server, of a database or of its proxy, that nothing listens on; it is asked nothing.

    Raises:
        StoreError: saying so, without a password.
    """
    host, port = _place(url)
    if not host or port is None:
        return
    try:
        socket.create_connection((host.strip("[]"), port), _SECONDS).close()
    except (OSError, UnicodeError) as error:
        if url.startswith(PROXY):
            raise StoreError(
                f"{STORAGE}: expected `gatehouse tuning serve-storage` at {host}:{port}, found {error}. "
                "Start it, or name another address."
            ) from error
        refuse(url, StoreError(str(error)))  # The socket was given no password.


def _place(url: str) -> tuple[str | None, int | None]:
    """Host and port of a server, read as what opens it later reads them; None where there is none to look for."""
    if url.startswith(PROXY):
        from gatehouse.tuning.access.proxy import host_and_port

        return host_and_port(url)
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    several = "," in (parsed.host or "")  # libpq takes the first that answers.
    return None if several else parsed.host, parsed.port or _PORTS.get(parsed.get_backend_name())


@functools.lru_cache(maxsize=1)
def _opened(url: str) -> optuna.storages.BaseStorage:
    """Open it once per process, because a command that follows an experiment reads it every second."""
    if url.startswith(PROXY):
        from gatehouse.tuning.access.proxy import proxied

        return proxied(url)
    return optuna.storages.get_storage(by_url(url))
