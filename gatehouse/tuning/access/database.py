"""Opens the database that holds studies instead of the artifact store."""

import optuna

from gatehouse.tuning.access.address import refuse, require_form

_CHECKED = {"pool_pre_ping": True}  # A connection that broke during a long training is replaced and is no error.


def by_url(url: str) -> optuna.storages.RDBStorage:
    """Open the database itself.

    Raises:
        StoreError: if it cannot be opened.
    """
    require_form(url)
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=_CHECKED)
    except Exception as error:
        refuse(url, error)
