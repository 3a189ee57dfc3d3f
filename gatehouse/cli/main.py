"""The command line: each command is a function in `gatehouse.cli`."""

import errno
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import typer
from rich.markup import escape

from gatehouse.errors import ConfigurationError, GatehouseError, is_interruption
from gatehouse.runtime.redaction import redacted

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="From raw events to a model that has earned production, through Kubeflow Pipelines.",
)


_COMMANDS = {
    "backfill": "run:backfill",
    "check": "project:check",
    "compile": "project:compile_specs",
    "data": "data:app",
    "doctor": "doctor:app",
    "features": "features:app",
    "gate": "models:gate",
    "init": "init:init",
    "models": "models:app",
    "predictor": "serve:predictor",
    "report": "data:report",
    "run": "run:run",
    "runs": "runs:app",
    "schedule": "schedule:app",
    "serve": "serve:app",
    "status": "status:status",
    "submit": "kfp:submit",
    "tuning": "tuning:app",
    "why": "why:why",
}
"""Module and name of each command; only those of the command that is called are imported."""
_EXTRAS = dict.fromkeys(("compile", "doctor", "schedule", "submit"), "pipelines") | {
    "data": "snapshot",
    "features": "features",
}
"""What a command needs to begin with, where that is less than all that one machine needs."""


def _register(verb: str) -> None:
    """Register `verb`, or all commands if it is unknown; one whose packages are not installed says so as its help."""
    for name in [verb] if verb in _COMMANDS else _COMMANDS:
        module, _, attribute = _COMMANDS[name].partition(":")
        try:
            command = getattr(import_module(f"gatehouse.cli.{module}"), attribute)
        except ImportError as error:
            missing = _missing(name, error)
            if missing is None or name == verb:
                raise
            app.command(name, help=escape(str(missing)))(lambda: None)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


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
        _register(verb)
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
        from gatehouse.store.atomic_file import disk_full
        from gatehouse.store.database import out_of_memory

        expected: GatehouseError | None = disk_full(error) or out_of_memory(error, "The command")
        expected = expected or _missing(verb, error)
        if isinstance(error, OSError) and error.errno in _PATH_ERRORS and error.filename:
            expected = ConfigurationError(f"{error.filename}: {(error.strerror or '').lower()}.")
        if expected is None:
            raise
        _fail(str(expected), expected.exit_code)


if __name__ == "__main__":
    main()
