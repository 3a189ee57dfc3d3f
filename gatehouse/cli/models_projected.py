"""`gatehouse models project`: writes the ledger to MLflow and the Model Registry again."""

from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, open_store
from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.naming import named
from gatehouse.registry.projection import projections, write


def project(name: Annotated[str, typer.Argument(help="Only this model.")] = "", store: StoreOption = "") -> None:
    """Show models anew in MLflow, and in the Kubeflow Model Registry where one is named; nothing is read from there.

    Raises:
        ConfigurationError: if nothing shows the models of this store.
    """
    opened = open_store(store)
    places = list(projections(opened))
    if not places:
        raise ConfigurationError(
            f"Nothing shows the models of {opened.address}: expected MLFLOW_TRACKING_URI or GATEHOUSE_MODEL_REGISTRY "
            "in the environment. A store on this machine is shown in its own MLflow."
        )
    for each in [named(opened, name).ledger.model_name] if name else model_names(opened):
        for place in places:
            write(place, Ledger(opened, each), anew=True)
            typer.echo(f"{place.title} shows {each}")
