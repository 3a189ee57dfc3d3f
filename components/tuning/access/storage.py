"""Opens the storage of studies that `GATEHOUSE_TUNING_STORAGE` names."""

import functools

import optuna

from gatehouse.components.tuning.access.address import PROXY, named_url, require_form
from gatehouse.components.tuning.access.database import by_url


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
        from gatehouse.components.tuning.access.proxy import proxied

        proxied(url)
    else:
        require_form(url)


@functools.lru_cache(maxsize=1)
def _opened(url: str) -> optuna.storages.BaseStorage:
    """Open it once per process, because a command that follows an experiment reads it every second."""
    if url.startswith(PROXY):
        from gatehouse.components.tuning.access.proxy import proxied

        return proxied(url)
    return optuna.storages.get_storage(by_url(url))
