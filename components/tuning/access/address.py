"""The address of the database that holds studies: its form, held against what this installation can open."""

import os
from typing import NoReturn

from gatehouse.errors import ConfigurationError, StoreError

STORAGE = "GATEHOUSE_TUNING_STORAGE"
"""Environment variable with the URL of a database for studies instead of the artifact store, or of its proxy."""
PROXY = "grpc://"


def named_url() -> str:
    """The URL in the environment variable, empty where there is none; without the line end of a secret from a file."""
    return os.environ.get(STORAGE, "").strip()


class StorageAddressError(StoreError):
    """The address of the studies' database is none that can ever be opened here."""

    exit_code = ConfigurationError.exit_code
    permanent = True


def require_form(url: str) -> None:
    """Refuse what is no address of a database, or names one that has no driver here; nothing is opened.

    Raises:
        StorageAddressError: saying why, without a password.
    """
    from sqlalchemy.engine import make_url

    try:
        parsed = make_url(url)
        if parsed.host and "@" in f"{parsed.host}{parsed.database}":
            raise ValueError("more than one @")
        if parsed.port is not None and not 0 < parsed.port < 2**16:
            raise ValueError(f"port {parsed.port}: expected a number from 1 to 65535")
        parsed.get_dialect().import_dbapi()
    except Exception as error:  # Drivers raise errors of any kind; `refuse` tells each.
        refuse(url, error, StorageAddressError)


def shown(url: str) -> str:
    """The URL of a database without its secrets."""
    from sqlalchemy.engine import make_url

    return make_url(url).set(query={}).render_as_string(hide_password=True)


def refuse(url: str, error: Exception, kind: type[StoreError] = StoreError) -> NoReturn:
    """Raise an error that says why a database cannot be opened, without the password of its URL.

    Args:
        url: The database's URL.
        error: Why it cannot be opened.
        kind: The class of the error to raise.

    Raises:
        StorageAddressError: if the URL is invalid, or has an @ that is not written as %40.
        StoreError: otherwise, as `kind`.
    """
    from sqlalchemy.engine import make_url

    wanted = f"{STORAGE}: expected the URL of a database that can be opened, such as postgresql+psycopg://…"
    mend = "Start the database, or mend the secret; without the secret, experiments are kept in the artifact store."
    try:
        parsed = make_url(url)
    except Exception:  # Its words would show the URL with its password.
        raise StorageAddressError(f"{wanted}, or {PROXY}HOST:PORT of its proxy; found what is no URL. {mend}") from None
    if parsed.host and "@" in f"{parsed.host}{parsed.database}":  # The rest of a password would be shown as a host.
        raise StorageAddressError(
            f"{wanted}, found more than one @: write each @ of the password as %40. {mend}"
        ) from None
    said = " ".join(str(error.__cause__ or error).split()).rstrip(".")
    for secret in (str(parsed.password or ""), *map(str, parsed.query.values())):
        said = said.replace(secret, "***") if secret else said
    raise kind(f"{wanted}, found {shown(url)}: {said}. {mend}") from None
