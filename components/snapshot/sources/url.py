"""The URL of a server, which stands in the declaration of a source or, where it has a password, in the environment."""

import os
from typing import Annotated

from pydantic import AfterValidator

from gatehouse.components.snapshot.access.credentials import holds_credentials
from gatehouse.errors import DeclarationError


def _without_password(url: str) -> str:
    if holds_credentials(url):
        # Not the value: it would reach the log.
        raise ValueError("holds a password: put the URL into an environment variable and name it in url_env")
    return url


Url = Annotated[str, AfterValidator(_without_password)]
"""A URL that holds no password."""


def address(url: str, variable: str) -> str:
    """The URL itself, or what the environment variable holds.

    Raises:
        DeclarationError: if the variable is not set.
    """
    if variable and not os.environ.get(variable):
        raise DeclarationError(
            f"The environment variable {variable} is not set: it holds the URL of the source. Set it, or correct "
            "source.url_env."
        )
    return os.environ[variable] if variable else url
