"""`gatehouse gate`: shows how a policy would have judged earlier candidates."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import StoreOption, open_store, print_json, print_table
from gatehouse.configuration.yaml_lines import load_model
from gatehouse.configuration.yaml_text import read_text
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.naming import named
from gatehouse.registry.policy_trial import tried
from gatehouse.store.reference import Reference

app = typer.Typer(no_args_is_help=True, help="The gate: what a policy says of candidates.")


@app.callback()
def _gate() -> None:
    """The gate: what a policy says of candidates."""


@app.command("try")
def try_policy(
    policy: Annotated[Path, typer.Argument(help="The policy, as YAML.")],
    on: Annotated[str, typer.Option(help="NAME for all judged candidates, or NAME:2; default: the only model.")] = "",
    output: Annotated[Literal["table", "json"], typer.Option("--format", help="How it is printed.")] = "table",
    store: StoreOption = "",
) -> None:
    """Show what a policy would have said of every earlier candidate, from their evaluations; no model is run."""
    problems: list[str] = []
    text = read_text(policy, str(policy), problems)
    asked = None if text is None else load_model(str(policy), text, GatePolicy, problems)
    if asked is None:
        raise ConfigurationError("\n".join(problems))
    opened = open_store(store)
    candidates = named(opened, on)
    found = tried(opened, asked, candidates)
    if output == "json":
        print_json([each.model_dump(mode="json") for each in found])
        return
    table = Table("version", "evaluation", "verdict then", "under this policy", "why", box=None, pad_edge=False)
    name = candidates.ledger.model_name
    for each in found:
        shown = f"{name}:{each.version}" if each.version else Reference.parse(each.model).short
        why = [*each.broken, *(f"warning: {text}" for text in each.warnings)]
        why += [f"not measured then: {text}" for text in each.not_measured]
        evaluation = Reference.parse(each.evaluation).short
        table.add_row(*map(Text, (shown, evaluation, each.then, each.now, "\n".join(why))))
    print_table(table)
