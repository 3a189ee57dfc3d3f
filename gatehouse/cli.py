"""The command line: one verb, one module of `gatehouse.commands`."""

import sys

import typer

from gatehouse.errors import GatehouseError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="From raw events to a model that has earned production, through Kubeflow Pipelines.",
)


def _register() -> None:
    from gatehouse.commands import compile as compile_command
    from gatehouse.commands import data, init, models, run

    app.command("run")(run.run)
    app.command("init")(init.init)
    app.command("compile")(compile_command.compile_specs)
    app.add_typer(data.app, name="data")
    app.add_typer(models.app, name="models")


def main() -> None:
    """Run the command line; an error that a user can act on is printed without a traceback."""
    _register()
    try:
        app(standalone_mode=True)
    except GatehouseError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
