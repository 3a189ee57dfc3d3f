"""`gatehouse predictor`: a model behind KServe's Open Inference Protocol."""

import logging
from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, open_store


def predictor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    store: StoreOption = "",
    online: Annotated[bool, typer.Option("--online", help="Also take keys alone: read the online store.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for a free one.")] = 8080,
    tokens: Annotated[bool, typer.Option("--tokens", help="Answer only callers with a token of the store.")] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Calls a second of each token; twice as many at once.")] = 1000,
    follow: Annotated[float, typer.Option(min=0, help="Seconds between looks at where an alias is; 0 for none.")] = 10,
) -> None:
    """Serve the predictions of a model until SIGINT or SIGTERM; they are those of a batch, to the bit."""
    import uvicorn

    from gatehouse.registry.naming import named
    from gatehouse.server.access import Access, Rate
    from gatehouse.server.inference import ServedModel
    from gatehouse.server.predictor import Following, create_app

    opened = open_store(store)
    served = ServedModel.of(opened, model, online)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.info("%s:%s is %s", served.name, served.version, served.model)

    def newer(present: ServedModel) -> ServedModel | None:
        moved = str(named(opened, model).number) != present.version
        return ServedModel.of(opened, model, online) if moved else None

    followed = Following(served, newer if follow and "@" in model else None, follow)
    access = Access(opened, Rate(rate, max(1, round(2 * rate)))) if tokens else None
    uvicorn.run(create_app(followed, access), host=host, port=port, log_config=None, server_header=False)
