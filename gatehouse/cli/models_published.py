"""`gatehouse models card` and `export`: a version's model card, and the model as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, open_store
from gatehouse.errors import ConfigurationError
from gatehouse.registry.card import model_card
from gatehouse.registry.explanation import ExplainRequest, explain
from gatehouse.registry.naming import named


def card(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead of the terminal.")] = None,
    store: StoreOption = "",
) -> None:
    """Write a version's model card, in Markdown with the YAML head that Hugging Face's hub reads."""
    opened = open_store(store)
    text = model_card(explain(ExplainRequest(model=model), opened), opened)
    if out is None:
        typer.echo(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    typer.echo(f"card: {out}")


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    onnx: Annotated[Path, typer.Option(help="Write the model to this file.")],
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="The largest difference of a prediction that is accepted.")
    ] = 1e-5,
    store: StoreOption = "",
) -> None:
    """Write a version as ONNX, from raw features to predictions; refused where onnxruntime predicts something else."""
    try:
        from gatehouse.training.onnx.export import export_model
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxruntime", "onnxscript"):
            raise
        raise ConfigurationError("models export needs ONNX: pip install 'gatehouse[onnx]'.") from None
    opened = open_store(store)
    found = named(opened, model)
    exported = export_model(opened, found.version.model, tolerance)
    onnx.parent.mkdir(parents=True, exist_ok=True)
    onnx.write_bytes(exported.model)
    compared = f"largest difference {exported.difference:.3g} on {exported.rows:,} test rows"
    typer.echo(f"{onnx}: {len(exported.model):,} bytes; {compared}")
