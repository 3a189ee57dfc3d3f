"""`gatehouse models handoff`: writes the files that a cluster needs to serve a version."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, open_store
from gatehouse.errors import ConfigurationError
from gatehouse.registry.naming import named


def handoff(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    out: Annotated[Path, typer.Option(help="Write the files into this folder.")],
    percent: Annotated[
        int, typer.Option(min=1, max=99, help="Share of the requests that a canary gets, in percent.")
    ] = 10,
    online: Annotated[bool, typer.Option("--online", help="Also take keys alone: read the online store.")] = False,
    pods_store: Annotated[str, typer.Option(help="The store as pods reach it; default: the same address.")] = "",
    cpu: Annotated[str, typer.Option(help="Request and limit.")] = "1",
    memory: Annotated[str, typer.Option(help="Request and limit.")] = "2Gi",
    store: StoreOption = "",
) -> None:
    """Write a version's InferenceService for KServe, the schema of its tensors, and the plan of a canary or shadow."""
    import yaml

    from gatehouse.registry.handoff import Serving, inference_service, plan
    from gatehouse.server.inference import ServedModel

    opened = open_store(store)
    found = named(opened, model)
    if not found.number:
        raise ConfigurationError(f"handoff: expected NAME:2 or NAME@champion, found {model!r}, which names no version.")
    service = inference_service(found, Serving(pods_store or opened.address, percent, online, cpu, memory))
    served = ServedModel.of(opened, f"{found.ledger.model_name}:{found.number}", online)
    schema = {name: [each.model_dump() for each in getattr(served, name)] for name in ("inputs", "outputs")}
    if served.online is not None:
        schema["keys"] = [each.model_dump() for each in served.online.inputs]
    planned = plan(opened, found, percent)
    files = {
        "inferenceservice.yaml": yaml.safe_dump(service, sort_keys=False),
        "schema.json": json.dumps(schema, indent=2),
        "plan.json": json.dumps(planned, indent=2),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
        typer.echo(out / name)
    if "units" in planned:
        typer.echo(
            f"{planned['stage']}: {planned['units']:,} units ({planned['unit']}) show that {planned['metric']} is "
            f"worse by no more than {planned['margin']:.3g}, with {planned['confidence']:.0%} confidence and a chance "
            "of 80%"
        )
    else:
        typer.echo(f"{planned['stage']}: no plan, as {planned['why']}")
