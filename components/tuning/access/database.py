"""Opens the database that holds studies instead of the artifact store."""

import os
from typing import NoReturn

import optuna

from gatehouse.errors import StoreError

STORAGE = "GATEHOUSE_TUNING_STORAGE"
"""Environment variable with the URL of a database for studies instead of the artifact store, or of its proxy."""
PROXY = "grpc://"
_CHECKED = {"pool_pre_ping": True}  # A connection that broke during a long training is replaced and is no error.


def named_url() -> str:
    """The URL in the environment variable, empty where there is none; without the line end of a secret from a file."""
    return os.environ.get(STORAGE, "").strip()


def by_url(url: str) -> optuna.storages.RDBStorage:
    """Open the database itself.

    Raises:
        StoreError: if it cannot be opened.
    """
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=_CHECKED)
    except Exception as error:
        _refuse(url, error)


def shown(url: str) -> str:
    """The URL of a database without its secrets."""
    from sqlalchemy.engine import make_url

    return make_url(url).set(query={}).render_as_string(hide_password=True)


def _refuse(url: str, error: Exception) -> NoReturn:
    """Raise an error that says why a database cannot be opened, without the password of its URL."""
    from sqlalchemy.engine import make_url

    wanted = f"{STORAGE}: expected the URL of a database that can be opened, such as postgresql+psycopg://…"
    mend = "Mend the secret, or remove it to keep experiments in the artifact store."
    try:
        parsed = make_url(url)
    except Exception:
        raise StoreError(f"{wanted}, or {PROXY}HOST:PORT of its proxy; found what is no URL. {mend}") from None
    if parsed.host and "@" in f"{parsed.host}{parsed.database}":  # The rest of a password would be shown as a host.
        raise StoreError(f"{wanted}, found more than one @: write each @ of the password as %40. {mend}") from None
    said = " ".join(str(error.__cause__ or error).split())
    for secret in (str(parsed.password or ""), *map(str, parsed.query.values())):
        said = said.replace(secret, "***") if secret else said
    raise StoreError(f"{wanted}, found {shown(url)}: {type(error).__name__}: {said} {mend}") from None
