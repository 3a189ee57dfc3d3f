"""The command line: each command is a function in `gatehouse.cli`."""

import errno
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import typer

from gatehouse.errors import ConfigurationError, GatehouseError, is_interruption
from gatehouse.runtime.redaction import redacted

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="From raw events to a model that has earned production, through Kubeflow Pipelines.",
)


_COMMANDS = {
    "backfill": ("run:backfill", "Run a pipeline on this machine once for each window of time."),
    "check": ("projects:check", "Check the files and queries of a project, without its data."),
    "compile": ("projects:compile_specs", "Compile every pipeline of a project."),
    "data": ("data:app", "What a store holds: list, show, verify, compare, copy, retire, erase."),
    "deploy": ("deploy:deploy", "Run the predictor of a model in a cluster, or write its manifests."),
    "doctor": ("kfp:doctor", "Whether a place gives what the pipelines of a project need."),
    "features": ("features:app", "Feature views: list, show, retrieve, materialize, skew, lineage."),
    "gate": ("models:gate", "The gate: what a policy says of candidates."),
    "init": ("projects:init", "Write a new project, commented or from a table."),
    "mlflow": ("runs:mlflow", "Open MLflow's own pages on the runs of a store."),
    "models": ("models:app", "Registered models: search, origin, approval, promotion, rollback."),
    "predictor": ("serve:predictor", "Serve the predictions of a model over HTTP."),
    "report": ("data:report", "Draw the page of an artifact, and open it."),
    "run": ("run:run", "Run a pipeline on this machine."),
    "runs": ("runs:app", "Tracked runs: search, show, compare, draw curves."),
    "schedule": ("kfp:app", "Runs that recur: apply, list, pause, resume, backfill, delete."),
    "serve": ("serve:app", "Serve the registry over HTTP, for programs and for people."),
    "status": ("pipelines:status", "How pipelines and stages do, or one run."),
    "submit": ("kfp:submit", "Run a pipeline on Kubeflow Pipelines."),
    "tuning": ("tuning:app", "Experiments: list, show, stop."),
    "why": ("pipelines:why", "What a stage's result depends on, and why it ran again."),
}
"""Module and name of each command, and its help; only the module of the command that is called is imported."""
_EXTRAS = dict.fromkeys(("compile", "doctor", "schedule", "submit"), "pipelines") | {
    "data": "snapshot",
    "features": "features",
}
"""The extra that a command needs, where it is smaller than that of a run."""


def register(*verbs: str) -> None:
    """Register these commands, and of all others no more than the name and the help."""
    for name, (place, text) in _COMMANDS.items():
        if name not in verbs:
            app.command(name, help=text)(lambda: None)
            continue
        module, _, attribute = place.partition(":")
        command = getattr(import_module(f"gatehouse.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=text)
        else:
            app.command(name, short_help=text)(command)


def _missing(verb: str, error: Exception) -> ConfigurationError | None:
    """The error of a command whose packages are not installed; None if `error` is another one."""
    if not isinstance(error, ImportError) or (error.name or "gatehouse").partition(".")[0] == "gatehouse":
        return None
    extra = _EXTRAS.get(verb, "example")
    return ConfigurationError(f"`gatehouse {verb}` needs {error.name}: in a checkout, pip install '.[{extra}]'.")


@app.callback()
def _gatehouse() -> None:
    """From raw events to a model that has earned production, through Kubeflow Pipelines."""


_PATH_ERRORS = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS)
"""Errors of a path that the user named."""
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"error: {redacted(message)}", file=sys.stderr)
    sys.exit(exit_code)


def main() -> None:
    """Run the command line; an error that a user can act on is printed without a traceback."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        register(verb)
        code = app(prog_name="gatehouse", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except _USAGE_ERROR as error:
        # Typer's own exit code is 2, which here means that a verdict ended a run.
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(ConfigurationError.exit_code)
        command = error.ctx.command_path if error.ctx else "gatehouse"
        message = error.format_message().rstrip(".")
        _fail(f"{command}: {message}. `{command} --help` lists what it takes.", ConfigurationError.exit_code)
    except GatehouseError as error:
        _fail(str(error), error.exit_code)
    except Exception as error:
        if is_interruption(error):
            print("interrupted", file=sys.stderr)
            sys.exit(128 + signal.SIGINT)
        # A full disk, full memory or a path that cannot be used: an error with a message.
        from gatehouse.store.database import out_of_memory

        expected: GatehouseError | None = out_of_memory(error, "The command")
        expected = expected or _missing(verb, error)
        if isinstance(error, OSError) and error.errno in _PATH_ERRORS and error.filename:
            expected = ConfigurationError(f"{error.filename}: {(error.strerror or '').lower()}.")
        if expected is None:
            raise
        _fail(str(expected), expected.exit_code)


if __name__ == "__main__":
    main()
