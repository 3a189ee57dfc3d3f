"""The address of the database that holds studies: its form, held against what this installation can open."""

import os
from typing import NoReturn

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.redaction import holds_password, require_encoded, said, shown

STORAGE = "GATEHOUSE_TUNING_STORAGE"
"""Environment variable with the URL of a database for studies instead of the artifact store, or of its proxy."""
PROXY = "grpc://"


class StorageAddressError(ConfigurationError, StoreError):
    """The address of the studies' database is none that can ever be opened here."""


def named_url() -> str:
    """The URL in the environment variable, empty where there is none.

    Raises:
        StorageAddressError: if its password is not percent-encoded.
    """
    url = os.environ.get(STORAGE, "").strip()
    return require_encoded(url, STORAGE, StorageAddressError) if url else ""


def require_form(url: str) -> None:
    """Refuse what is no address of a database, or names one that has no driver here; nothing is opened.

    Raises:
        StorageAddressError: saying why, without a password.
    """
    from sqlalchemy.engine import make_url

    require_encoded(url, STORAGE, StorageAddressError)
    try:
        parsed = make_url(url)
        if parsed.port is not None and not 0 < parsed.port < 2**16:
            raise StoreError(f"port {parsed.port}: expected a number from 1 to 65535")
        parsed.get_dialect().import_dbapi()
    except Exception as error:  # Drivers raise errors of any kind; `refuse` tells each.
        refuse(url, error, StorageAddressError)


def refuse(url: str, error: Exception, kind: type[StoreError] = StoreError) -> NoReturn:
    """Raise an error that says why a database cannot be opened, without the password of its URL.

    Args:
        url: The database's URL.
        error: Why it cannot be opened.
        kind: The class of the error to raise.

    Raises:
        StoreError: as `kind`.
    """
    words = str(error) if isinstance(error, StoreError) else said(error.__cause__ or error, holds_password(url))
    raise kind(
        f"{STORAGE}: expected the URL of a database that can be opened, such as postgresql+psycopg://…, found "
        f"{shown(url)}: {words}. Start the database, or mend the secret; without the secret, "
        "experiments are kept in the artifact store."
    ) from None
