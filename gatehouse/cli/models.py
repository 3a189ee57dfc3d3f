"""`gatehouse models` and `gatehouse gate`: registered versions, their origin, the champion, and trials of a policy."""

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.api import models
from gatehouse.cli.output import (
    JsonOption,
    ReasonOption,
    SortOption,
    StoreBesideProjectOption,
    StoreOption,
    WhereOption,
    echo,
    show,
    written,
)
from gatehouse.configuration.yaml_lines import load_model, read_text
from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.project.place import PROJECT_FILE, address_of, find, no_store_at, open_store, project_folder
from gatehouse.registry import explanation, projection, promotion, reproduction
from gatehouse.registry.alias import Resolver
from gatehouse.registry.approval import exempt
from gatehouse.registry.card import explanation_page, model_card
from gatehouse.registry.ledger import ALIASES, CHAMPION, Ledger, model_names
from gatehouse.registry.naming import named
from gatehouse.registry.policy_trial import effective_policy, tried
from gatehouse.store.objects.remote import cache_folder
from gatehouse.store.reference import Reference

app = typer.Typer(no_args_is_help=True)
gate = typer.Typer(no_args_is_help=True)
_HOW = "NAME, NAME:2 or NAME@champion; without the name where there is one model"
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}.")]
VersionArgument = Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")]
VerdictOption = Annotated[str, typer.Option(help="Digest of the verdict that you read; `models show NAME:2` has it.")]
_ALIAS = re.compile(r"([a-z][a-z0-9-]*)@(\w+)")


@app.command("list")
def list_models(
    name: Annotated[str, typer.Argument(help="Only this model.")] = "",
    trained_on: Annotated[str, typer.Option(help="Only versions made from this artifact, at any distance.")] = "",
    where: WhereOption = None,
    sort: SortOption = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List registered versions, all or those that meet conditions on metrics, settings, tags and status."""
    opened = open_store(store)
    selected = models.versions(opened, name, trained_on, where or (), sort)
    which = "model like that" if trained_on or where else "models"
    empty = f"{opened.address} has no registered {which}. A training run registers one that passes the gate."
    show(selected, as_json, empty=empty)
    for model in [] if as_json else models.models(opened):
        if not model.versions and name in ("", model.name):
            why = f"`gatehouse models show {model.name}` says why the gate let none pass."
            typer.echo(f"{model.name} has no version: {why}")


@app.command("show")
def show_model(model: ModelArgument = "", store: StoreOption = "", as_json: JsonOption = False) -> None:
    """Show a model's ledger, or of NAME:2 or NAME@champion what this version was made from."""
    opened = open_store(store)
    target = named(opened, model)
    if not target.number:
        show(models.history(opened, model), as_json)
        return
    state, name = target.ledger.state(), target.ledger.model_name
    (version,) = models.versions(opened, name, where=[f"number={target.number}"]).records
    last = state.last_verdict(version.model)
    uses = f"judged {state.uses_before(last[0], last[1].subject):,} other candidates before" if last else ""
    numbers = {
        number.name: f"{number.value:.4g}" + ("" if number.low is None else f" [{number.low:.4g}, {number.high:.4g}]")
        for number in version.numbers
    }
    facts: dict[str, Any] = {
        "version": f"{name}:{target.number}",
        "status": version.status,
        "aliases": version.aliases,
        "registered": version.registered,
    }
    facts |= {"by": version.by, "verdict": version.verdict, "digest of the verdict": version.verdict_digest}
    live = next((entry for _, entry in reversed(state.live) if entry.canary == version.model), None)
    facts |= {"judged against": version.judged_against, "live verdict": f"{live.verdict}, {live.short}" if live else ""}
    facts |= {"test set": uses, "model": version.model, "evaluation": version.evaluation, "tags": version.tags}
    show(version, as_json, view=facts | {"metrics": numbers, "made from": version.made_from})


@app.command("promote")
def promote_version(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}. Default: the one in staging.")] = "",
    reason: ReasonOption = "",
    override: Annotated[bool, typer.Option("--override", help="Although the gate refused it; needs --reason.")] = False,
    to: Annotated[str, typer.Option(help=f"The alias that it gets: {', '.join(ALIASES)}.")] = CHAMPION,
    share: Annotated[float | None, typer.Option(help="Share of the requests for a canary: 0 to 1; first 0.05.")] = None,
    store: StoreOption = "",
) -> None:
    """Make a version the champion, or canary or shadow. One that was rolled back needs its number and a reason."""
    _act(store, model, "promote", reason, override=override, to=to, share=share)


@app.command("approve")
def approve_version(
    model: ModelArgument = "", verdict: VerdictOption = "", reason: ReasonOption = "", store: StoreOption = ""
) -> None:
    """Sign the last verdict on a version (default: the one in staging), so that it may be promoted for some days."""
    _sign(store, model, "approve", reason, verdict)


@app.command("reject")
def reject_version(
    model: ModelArgument = "", verdict: VerdictOption = "", reason: ReasonOption = "", store: StoreOption = ""
) -> None:
    """Sign that a version (default: the one in staging) may not be promoted, whatever the gate said."""
    _sign(store, model, "reject", reason, verdict)


@app.command("exempt")
def exempt_candidate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The candidate: NAME:2, or its reference.")],
    rule: Annotated[str, typer.Option(help='The rule that it breaks, as the verdict names it: "slice carrier=OO".')],
    until: Annotated[str, typer.Option(help="The last day on which it holds, in UTC, such as 2026-12-31.")],
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Let one candidate break one rule of the gate until a day; the next run registers it if it breaks no other."""
    opened = open_store(store)
    try:
        day = date.fromisoformat(until)
    except ValueError as error:
        raise ConfigurationError(f"--until: expected a day such as 2026-12-31, found {until!r}.") from error
    name, exemption = exempt(opened, str(find(opened, model)), rule, day, reason)
    typer.echo(f"{Reference.parse(exemption.model).short} is {exemption}")
    typer.echo(f"Run the training pipeline again: it registers the candidate of {name} with it.")


def _sign(store: str, model: str, action: str, reason: str, verdict: str) -> None:
    opened = open_store(store)
    name, result = models.sign(opened, model, action, reason, verdict)
    typer.echo(f"{name}:{result.version} is {result.decision} by {result.by}; verdict sha256-{result.verdict[:12]}")
    champions = Ledger(opened, name).state().champions
    if champions[-1:] == (result.version,):
        typer.echo(
            f"It is the champion: `gatehouse models rollback {name}:{result.version}` withdraws it."
            if len(champions) > 1
            else "It is the first champion and stays in production: promote another version, or train one."
        )
    elif result.until:
        typer.echo(f"Until {result.until}: gatehouse models promote {name}:{result.version}, or the promotion pipeline")


@app.command()
def rollback(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}. Default: the champion.")] = "",
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Take the champion out of production, and return to the one before it; or end NAME@canary or NAME@shadow."""
    _act(store, model, "rollback", reason)


@app.command()
def archive(model: ModelArgument, reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Keep a version for the record only: it cannot be promoted any more."""
    _act(store, model, "archive", reason)


def _act(store: str, model: str, action: str, reason: str, **more: Any) -> None:
    name, result = models.act(open_store(store), model, action, reason=reason, **more)
    if result.decision.endswith("already"):
        typer.echo(f"{name}:{result.version} is {result.decision}; nothing was changed.")
        return
    champion = Reference.parse(result.champion).short if result.champion else "none"
    alias = f" to {more['to']}" if "to" in more else ""
    typer.echo(f"{name}:{result.version} is {result.decision}{alias}; the champion is {champion}")


PolicyOption = Annotated[
    Path | None,
    typer.Option(help="The policy, as YAML, with a section `live`; default: policy.yaml of the project."),
]
LabelOption = Annotated[str, typer.Option(help="Column of labels.")]
LabelTimeOption = Annotated[str, typer.Option(help="Column that says when an outcome became known.")]
PositiveOption = Annotated[str, typer.Option(help="The positive one of two labels with names.")]


@app.command()
def live(
    outcomes: Annotated[str, typer.Argument(help="A table of outcomes: a file, or a reference.")],
    model: Annotated[str, typer.Option(help="NAME; default: the only model.")] = "",
    policy: PolicyOption = None,
    label: LabelOption = "label",
    label_time: LabelTimeOption = "",
    positive: PositiveOption = "",
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare the canary with the champion on live outcomes: promote it, go on, or take it back."""
    from gatehouse.registry import live_stage
    from gatehouse.registry.rollout_stage import sections_of
    from gatehouse.reports.contents import rendered

    opened = open_store(store)
    rules, _ = sections_of(_policy_in(policy, store).model_dump(mode="json"))
    name = named(opened, model).ledger.model_name
    read = {"label": label, "label_time": label_time, "positive": positive}
    log = live_stage.collect_arms(opened, name)
    result = models.compare_live(opened, name, rules, log, outcomes, read)
    page = rendered(opened, result.evaluation)
    if html is not None:
        written(html, page.read_text(encoding="utf-8"))
    body = opened.read_json(result.evaluation, live_stage.FILE)
    view = {"verdict": result.verdict, "reasons": result.reasons, "differences": body["differences"]}
    show(result, as_json, view=view | {"rows": body["facts"], "page": html or page})


@app.command("rollout")
def roll_out(
    model: Annotated[str, typer.Argument(metavar="NAME", help="Default: the only model.")] = "",
    outcomes: Annotated[str, typer.Option(help="A table of outcomes: a file, or a reference.")] = "",
    policy: PolicyOption = None,
    label: LabelOption = "label",
    label_time: LabelTimeOption = "",
    positive: PositiveOption = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Take a rollout one step: the version in staging to its first requests, a canary to more of them, or back."""
    opened = open_store(store)
    name = named(opened, model).ledger.model_name
    read = {"label": label, "label_time": label_time, "positive": positive}
    step, evaluation = models.roll_out(opened, name, _policy_in(policy, store), outcomes, read)
    version = {"version": f"{name}:{step.version}", "share": step.share} if step.version else {}
    show(step, as_json, view={"decision": step.decision, **version, "why": step.reasons, "evaluation": evaluation})


@app.command("copy")
def copy_model(
    model: VersionArgument,
    to: Annotated[str, typer.Option(help="The other store, such as s3://prod/store.")],
    project: Annotated[
        Path | None,
        typer.Option(help="The project of that store, for its policy; default: the policy it was judged by."),
    ] = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy a version with all evidence to another store, judge it by the gate there, and register it."""
    from gatehouse.project.project import load_project
    from gatehouse.registry.copying import copy_version
    from gatehouse.store.store import ArtifactStore

    target = load_project(project_folder(project)) if project else None
    if target and target.file.model != named(open_store(store), model).ledger.model_name:
        raise ConfigurationError(f"--project: expected that of {model}, found one of {target.file.model}.")
    judging = (target.policy, target.file.evaluation) if target else (None, None)
    copied = copy_version(named(open_store(store), model), ArtifactStore.open(address_of(to)), *judging)
    show(copied, as_json)
    raise typer.Exit(0 if copied.version else 3)


@app.command()
def explain(
    model: VersionArgument,
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Explain a version: which data, code, configuration, environment, seeds, parents, who and why; and its lineage."""
    explained = explanation.explain(open_store(store), model)
    name = f"{explained.name}:{explained.version}"
    page = html or cache_folder() / "pages" / "models" / f"{explained.name}-{explained.version}.html"
    if not as_json:
        written(page, explanation_page(explained))
    view: dict[str, Any] = {"version": name, "stage": explained.stage, "the gate says": explained.verdict, "page": page}
    view |= {answer.question: dict(answer.facts) or answer.missing for answer in explained.answers}
    view |= {"numbers on the test part": {value.name: value for value in explained.numbers}}
    show(explained, as_json, view=view | {"what happened to it": explained.acts})


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="NAME:2 or NAME@champion.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare two versions: every number, and what changed in data, features, configuration, code and environment."""
    compared = explanation.compare(open_store(store), first, second)
    names = (compared.first, compared.second)
    numbers = [
        {"on the test part": pair.name, names[0]: pair.first, names[1]: pair.second} for pair in compared.numbers
    ]
    view = {"numbers": numbers, "note": "" if compared.same_test else explanation.DIFFERENT_ROWS}
    show(compared, as_json, view=view | {"changes": compared.changes or "nothing changed"})


@app.command()
def tag(
    model: VersionArgument,
    tags: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="What to note; NAME= removes it.")],
    store: StoreOption = "",
) -> None:
    """Note something about a version; lists of versions show it."""
    opened = open_store(store)
    target = named(opened, model)
    if wrong := [text for text in tags if "=" not in text]:
        raise ConfigurationError(f"tag: expected NAME=VALUE, found {', '.join(wrong)}.")
    name, number = target.ledger.model_name, target.version.version
    state = promotion.tag(opened, name, number, dict(text.split("=", 1) for text in tags))
    projection.project(opened, name, state, "tag:projection")
    version = state.version(number)
    noted = " ".join(f"{tag_name}={value}" for tag_name, value in version.tags) if version else ""
    typer.echo(f"{name}:{number} {noted or 'has no tags'}")


@app.command()
def reproduce(
    model: VersionArgument,
    into: Annotated[Path | None, typer.Option(help="An empty folder for the store; default: a temporary one.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Rebuild a version from its snapshot in a clean store, and prove that its weights are the same."""
    result = reproduction.reproduce(open_store(store), model, str(into or ""))
    if result.same and not as_json:
        result = result.model_copy(update={"largest": None, "mean": None})  # Of scores that are equal.
    show(result, as_json)
    if not as_json:
        echo("It was made again to the bit." if result.same else ("It differs.", "bold red"))
    raise typer.Exit(0 if result.same else 1)


@app.command()
def resolve(
    model: Annotated[str, typer.Argument(metavar="NAME@ALIAS", help="Such as flight-delays@champion.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print the folder with the verified files of what holds an alias; from this machine alone if the store is away."""
    match = _ALIAS.fullmatch(model)
    if match is None:
        raise ConfigurationError(f"resolve: expected NAME@ALIAS, such as flight-delays@champion, found {model!r}.")
    address = address_of(store)
    resolver, missing = Resolver(address, match[1]), no_store_at(address)
    if missing and not resolver.knows:
        raise ConfigurationError(missing)
    try:
        if missing:  # Such as a volume that is not mounted; opening it would make an empty store there.
            raise StoreError(missing)
        resolver.refresh()
    except StoreError as error:
        typer.echo(f"The store does not answer, so this is what was known before: {error}", err=True)
    version = resolver.resolve(match[2])
    show(version, as_json, view=str(version.path))


@app.command()
def card(
    model: VersionArgument,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead of the terminal.")] = None,
    store: StoreOption = "",
) -> None:
    """Write a version's model card, in Markdown with the YAML head that Hugging Face's hub reads."""
    opened = open_store(store)
    text = model_card(explanation.explain(opened, model), opened)
    typer.echo(text if out is None else f"card: {written(out, text)}")


@app.command()
def export(
    model: VersionArgument,
    onnx: Annotated[Path, typer.Option(help="Write the model to this file.")],
    tolerance: Annotated[float, typer.Option(min=0.0, help="The largest accepted difference of a prediction.")] = 1e-5,
    store: StoreOption = "",
) -> None:
    """Write a version as ONNX, from prepared columns to scores; refused where onnxruntime predicts something else."""
    try:
        from gatehouse.training.onnx import export_model
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxruntime", "onnxscript"):
            raise
        raise ConfigurationError("models export needs ONNX: in a checkout, pip install '.[onnx]'.") from None
    opened = open_store(store)
    exported = export_model(opened, named(opened, model).version.model, tolerance)
    onnx.parent.mkdir(parents=True, exist_ok=True)
    onnx.write_bytes(exported.model)
    compared = f"largest difference {exported.difference:.3g} on {exported.rows:,} test rows"
    typer.echo(f"{onnx}: {len(exported.model):,} bytes; {compared}")


@app.command()
def project(name: Annotated[str, typer.Argument(help="Only this model.")] = "", store: StoreOption = "") -> None:
    """Show models anew in MLflow, and in the Kubeflow Model Registry where one is named; nothing is read from there."""
    opened = open_store(store)
    places = list(projection.projections(opened))
    if not places:
        raise ConfigurationError(
            f"Nothing shows the models of {opened.address}: expected MLFLOW_TRACKING_URI or GATEHOUSE_MODEL_REGISTRY "
            "in the environment. A store on this machine is shown in its own MLflow."
        )
    for model in [named(opened, name).ledger.model_name] if name else model_names(opened):
        for place in places:
            projection.write(place, Ledger(opened, model), anew=True)
            typer.echo(f"{place.title} shows {model}")


@gate.callback()
def _gate() -> None:
    """The gate: what a policy says of candidates."""


@gate.command("try")
def try_policy(
    policy: Annotated[Path, typer.Argument(help="The policy, as YAML.")],
    on: Annotated[str, typer.Option(help="NAME for all judged candidates, or NAME:2; default: the only model.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a policy would have said of every earlier candidate, from their evaluations; no model is run."""
    opened = open_store(store)
    trials = tried(opened, _policy_in(policy), named(opened, on))
    show(trials, as_json, empty="No candidate of this name was judged.")


@gate.command("policy")
def show_policy(
    policy: Annotated[Path, typer.Argument(help="The policy, as YAML.")] = Path("policy.yaml"),
    on: Annotated[str, typer.Option(help="NAME for its last candidate, or NAME:2; default: the only model.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a policy with all defaults, and what each rule can still refuse on the rows of a judged candidate."""
    opened = open_store(store)
    judged = named(opened, on) if on or model_names(opened) else None
    result = effective_policy(opened, _policy_in(policy), judged)
    nothing = "no candidate was judged: the null settings have the defaults of the task"
    view = {"on the rows of": result.evaluation or nothing, "asks nothing": ", ".join(result.off)}
    show(result, as_json, view=view | {"warnings": result.warnings, "rules": result.rules, "settings": result.settings})


def _policy_in(path: Path | None, store: str = "") -> GatePolicy:
    path = path or Path(store if Path(store, PROJECT_FILE).is_file() else "", "policy.yaml")
    problems: list[str] = []
    text = read_text(path, str(path), problems)
    policy = None if text is None else load_model(str(path), text, GatePolicy, problems)
    if policy is None:
        raise ConfigurationError("\n".join(problems))
    return policy
