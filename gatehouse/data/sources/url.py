"""The URL of a server, which stands in the declaration of a source or, where it has a password, in the environment."""

import os
from typing import Annotated

from pydantic import AfterValidator

from gatehouse.errors import DeclarationError
from gatehouse.runtime.redaction import names_password, require_encoded


def _without_password(url: str) -> str:
    if names_password(url):
        # Not the value: it would reach the log.
        raise ValueError("holds a password: put the URL into an environment variable and name it in url_env")
    return url


Url = Annotated[str, AfterValidator(_without_password)]
"""A URL that holds no password."""


def address(url: str, variable: str) -> str:
    """The URL itself, or what the environment variable holds.

    Raises:
        DeclarationError: if the variable is not set, or what it holds is not percent-encoded.
    """
    if variable and not os.environ.get(variable):
        raise DeclarationError(
            f"The environment variable {variable} is not set: it holds the URL of the source. Set it, or correct "
            "source.url_env."
        )
    return require_encoded(os.environ[variable] if variable else url, variable or "source.url", DeclarationError)
