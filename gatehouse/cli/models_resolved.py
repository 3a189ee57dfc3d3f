"""`gatehouse models resolve`: an alias as a folder with verified files, even if the store does not answer."""

import re
from typing import Annotated

import typer

from gatehouse.cli.output import JsonOption, StoreOption, address_of, no_store_at, print_json
from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.registry.alias import Resolver

_ALIAS = re.compile(r"([a-z][a-z0-9-]*)@(\w+)")


def resolve(
    model: Annotated[str, typer.Argument(metavar="NAME@ALIAS", help="Such as flight-delays@champion.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print the folder with the verified files of what holds an alias; from this machine alone if the store is away."""
    found = _ALIAS.fullmatch(model)
    if found is None:
        raise ConfigurationError(f"resolve: expected NAME@ALIAS, such as flight-delays@champion, found {model!r}.")
    address = address_of(store)
    resolver, lacking = Resolver(address, found[1]), no_store_at(address)
    if lacking and not resolver.knows:
        raise ConfigurationError(lacking)
    try:
        if lacking:  # Such as a volume that is not mounted; opening it would make an empty store there.
            raise StoreError(lacking)
        resolver.refresh()
    except StoreError as error:
        typer.echo(f"The store does not answer, so this is what was known before: {error}", err=True)
    held = resolver.resolve(found[2])
    if as_json:
        print_json({"version": held.version, "model": held.model, "path": str(held.path), "age": held.age})
    else:
        typer.echo(str(held.path))
