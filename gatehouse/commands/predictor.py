"""`gatehouse predictor`: a version of a model behind KServe's Open Inference Protocol."""

import logging
from typing import Annotated

import typer

from gatehouse.commands.output import StoreOption, open_store


def predictor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    store: StoreOption = "",
    online: Annotated[bool, typer.Option("--online", help="Also take keys alone: read the online store.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for a free one.")] = 8080,
) -> None:
    """Serve the predictions of a version until SIGINT or SIGTERM; they are those of a batch, to the bit."""
    import uvicorn

    from gatehouse.server.inference import ServedModel
    from gatehouse.server.predictor import create_app

    served = ServedModel.of(open_store(store), model, online)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.info("%s:%s is %s", served.name, served.version, served.model)
    uvicorn.run(create_app(served), host=host, port=port, log_config=None, server_header=False)
