"""The feature tests' flights and stores, for the tests of online features."""

from tests.features.conftest import flights, online, raw_tables, repository, server

__all__ = ["flights", "online", "raw_tables", "repository", "server"]
