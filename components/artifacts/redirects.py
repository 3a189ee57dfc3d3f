"""Requests that follow no redirect: what is sent, as a token, is for the server that was named and for no other."""

import urllib.request
from typing import Any


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect as the answer that it is."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nowhere."""
