"""Requests that follow no redirect, so that a token is sent only to the server that was named."""

import urllib.request
from typing import Any


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Returns a redirect as the answer."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Do not follow the redirect."""
