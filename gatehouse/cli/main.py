"""The command line: one verb, one module of `gatehouse.cli`."""

import errno
import itertools
import re
import signal
import sys
from collections.abc import Sequence
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


def _register(verb: str) -> None:
    """Register `verb`, or every verb if it is unknown; so a command does not import the modules of other verbs."""
    verbs = {
        "run": _run,
        "backfill": _backfill,
        "check": _check,
        "init": _init,
        "compile": _compile,
        "data": _data,
        "doctor": _doctor,
        "features": _features,
        "gate": _gate,
        "kueue": _kueue,
        "models": _models,
        "predictor": _predictor,
        "report": _report,
        "runs": _runs,
        "schedule": _schedule,
        "serve": _serve,
        "status": _status,
        "submit": _submit,
        "tuning": _tuning,
        "why": _why,
    }
    for name in [verb] if verb in verbs else verbs:
        verbs[name]()


def _run() -> None:
    from gatehouse.cli import run

    app.command("run")(run.run)


def _backfill() -> None:
    from gatehouse.cli import backfill

    app.command("backfill")(backfill.backfill)


def _check() -> None:
    from gatehouse.cli import check

    app.command("check")(check.check)


def _init() -> None:
    from gatehouse.cli import init

    app.command("init")(init.init)


def _compile() -> None:
    from gatehouse.cli import compile as command

    app.command("compile")(command.compile_specs)


def _data() -> None:
    from gatehouse.cli import data

    app.add_typer(data.app, name="data")


def _features() -> None:
    from gatehouse.cli import features

    app.add_typer(features.app, name="features")


def _gate() -> None:
    from gatehouse.cli import gate

    app.add_typer(gate.app, name="gate")


def _doctor() -> None:
    from gatehouse.cli import doctor

    app.add_typer(doctor.app, name="doctor")


def _kueue() -> None:
    from gatehouse.cli import kueue

    app.add_typer(kueue.app, name="kueue")


def _models() -> None:
    from gatehouse.cli import models

    app.add_typer(models.app, name="models")


def _predictor() -> None:
    from gatehouse.cli import predictor

    app.command("predictor")(predictor.predictor)


def _runs() -> None:
    from gatehouse.cli import runs

    app.add_typer(runs.app, name="runs")


def _schedule() -> None:
    from gatehouse.cli import schedule

    app.add_typer(schedule.app, name="schedule")


def _serve() -> None:
    from gatehouse.cli import serve

    app.add_typer(serve.app, name="serve")


def _status() -> None:
    from gatehouse.cli import status

    app.command("status")(status.status)


def _submit() -> None:
    from gatehouse.cli import submit

    app.command("submit")(submit.submit)


def _tuning() -> None:
    from gatehouse.cli import tuning

    app.add_typer(tuning.app, name="tuning")


def _report() -> None:
    from gatehouse.cli import report

    app.command("report")(report.report)


def _why() -> None:
    from gatehouse.cli import why

    app.command("why")(why.why)


@app.callback()
def _gatehouse() -> None:
    """From raw events to a model that has earned production, through Kubeflow Pipelines."""


_OF_A_PATH = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS)
"""What is wrong with a path that somebody named, and no fault of ours."""
_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")
_NO_COMMAND = re.compile(r"No such command '(.*?)'\.")
_TOO_MANY = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
_WORDS = (
    ("Value error, ", ""),
    ("Input should be ", "expected "),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    (", unable to parse string as a number", ""),
    (", unable to parse string as an integer", ""),
)


def _refused(error: typer.BadParameter) -> str:
    """A refused value in the words of all other errors: the option, what was expected, what was found."""
    said, names = error.message, [*getattr(error.param, "opts", ())]
    name = names[0] if names else "the command line"
    if choice := _CHOICE.search(said):
        choices = [each for each in re.findall("'([^']*)'", choice[2]) if each]
        return f"{name}: {_one_of(choices, choice[1])}"
    for theirs, ours in _WORDS:
        said = said.replace(theirs, ours)
    given = [each.partition("=")[2] for each in sys.argv if each.partition("=")[0] in names and "=" in each]
    given += [after for before, after in itertools.pairwise(sys.argv) if before in names]
    found = f", found {given[-1]}" if given and said.startswith("expected ") else ""
    return f"{name}: {said}{found}"


def _one_of(known: Sequence[str], found: str) -> str:
    from gatehouse.configuration.yaml_lines import nearest

    return f"expected one of {', '.join(known)}, found {found}{nearest(found, known)}"


def _misused(error: Any) -> str:
    """A mistake on the command line in the words of all other errors."""
    kind, context = type(error).__name__, error.ctx
    # Where an option's value is missing, Typer does not say of which command.
    words = itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:])
    command = context.command_path if context else " ".join(["gatehouse", *words])
    if isinstance(error, typer.BadParameter) and kind != "MissingParameter":
        told = _refused(error)
    elif kind == "MissingParameter":
        (named, *_), is_argument = error.param.opts, error.param.param_type_name == "argument"
        told = f"expected {named.upper() if is_argument else named}, found none: {error.param.help or 'it is required'}"
    elif kind == "NoSuchOption":
        shown = [each for each in context.command.get_params(context) if not getattr(each, "hidden", False)]
        told = _one_of([name for each in shown for name in each.opts if name.startswith("-")], error.option_name)
    elif kind == "BadOptionUsage":
        value = "a value, found none" if "requires" in error.message else "no value, found one"
        told = f"{error.option_name}: expected {value}"
    elif unknown := _NO_COMMAND.match(error.message):
        told = _one_of(sorted(context.command.list_commands(context)), unknown[1])
    elif extra := _TOO_MANY.match(error.message):
        taken = [each.name.upper() for each in context.command.params if each.param_type_name == "argument"]
        told = f"expected nothing after {' '.join(taken)}" if taken else "expected options alone"
        told += f", found {extra[1]}"
    else:
        told = error.format_message()
    return f"{command}: {told.rstrip('.')}{'' if told.endswith('?') else '.'} `{command} --help` lists what it takes."


def _aborted(error: typer.Abort) -> NoReturn:
    """End as a question ended: at the end of the input, which is a mistake, or by Ctrl-C."""
    if not isinstance(error.__context__, EOFError):
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    told = "expected an answer to the question, found the end of the input. `--help` lists the options that answer it."
    print(f"error: {told}", file=sys.stderr)
    sys.exit(GatehouseError.exit_code)


def _failed(error: GatehouseError) -> NoReturn:
    """End with an error's words and exit code."""
    print(f"error: {redacted(str(error))}", file=sys.stderr)
    sys.exit(error.exit_code)


def _known(error: Exception) -> GatehouseError | None:
    """A full disk, full memory or a path that cannot be used, in words; None for other errors."""
    from gatehouse.store.atomic_file import disk_full
    from gatehouse.store.database import out_of_memory

    if isinstance(error, OSError) and error.errno in _OF_A_PATH and error.filename:
        return ConfigurationError(f"{error.filename}: {(error.strerror or '').lower()}.")
    return disk_full(error) or out_of_memory(error, "The command")


def main() -> None:
    """Run the command line; an error that a user can act on is printed without a traceback."""
    _register(sys.argv[1] if len(sys.argv) > 1 else "")
    try:
        code = app(prog_name="gatehouse", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Abort as error:
        _aborted(error)
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            print(f"error: {redacted(_misused(error))}", file=sys.stderr)
        # Typer's own exit code is 2, which here means that a verdict ended a run.
        sys.exit(ConfigurationError.exit_code)
    except GatehouseError as error:
        _failed(error)
    except Exception as error:
        if is_interruption(error):
            print("interrupted", file=sys.stderr)
            sys.exit(128 + signal.SIGINT)
        if (known := _known(error)) is None:
            raise
        _failed(known)


if __name__ == "__main__":
    main()
