"""`gatehouse models` and `gatehouse gate`: registered versions, their origin, the champion, and trials of a policy."""

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gatehouse.cli.output import JsonOption, StoreOption, print_facts, print_json, print_rows, short
from gatehouse.cli.terminal import figure
from gatehouse.configuration.yaml_lines import load_model, read_text
from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.project.place import address_of, find, no_store_at, open_store
from gatehouse.registry import explanation, projection, promotion, reproduction
from gatehouse.registry.alias import Resolver
from gatehouse.registry.approval import ApproveRequest, ExemptRequest, approve, exempt
from gatehouse.registry.card import model_card
from gatehouse.registry.explanation import Number, numbers_of
from gatehouse.registry.ledger import ALIASES, CHAMPION, Ledger, ModelVersion, model_names
from gatehouse.registry.naming import VersionName, named
from gatehouse.registry.policy_trial import tried
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.reports.format import number
from gatehouse.store.objects.remote import cache_folder
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

app = typer.Typer(no_args_is_help=True, help="Registered models: origin, approval, promotion, rollback.")
gate = typer.Typer(no_args_is_help=True, help="The gate: what a policy says of candidates.")
_HOW = "NAME, NAME:2 or NAME@champion; without the name where there is one model"
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}.")]
VersionArgument = Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")]
ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the ledger.")]
_METRICS = 3
_ALIAS = re.compile(r"([a-z][a-z0-9-]*)@(\w+)")


@app.command("list")
def list_models(
    name: Annotated[str, typer.Argument(help="Only this model.")] = "",
    trained_on: Annotated[str, typer.Option(help="Only versions made from this artifact, at any distance.")] = "",
    store: StoreOption = "",
) -> None:
    """List registered versions: status, metrics, when each was registered, and what it was judged against."""
    opened = open_store(store)
    origin = str(find(opened, trained_on)) if trained_on else ""
    rows = []
    for model in [named(opened, name).ledger.model_name] if name else model_names(opened):
        ledger = Ledger(opened, model)
        records, state = ledger.records(), ledger.state()
        if not state.versions:
            typer.echo(f"{model} has no version: `gatehouse models show {model}` says why the gate let none pass.")
        for version in state.versions:
            if origin and origin not in version.lineage:
                continue
            reference, last = Reference.parse(version.model), state.last_verdict(version.model)
            champion = last[1].champion if last else ""
            status = state.stage_of(version) + (", erased" if opened.erasures.of(reference) else "")
            at = str(records[version.registered_at - 1].provenance.get("at", ""))[:16].replace("T", " ")
            against = Reference.parse(champion).short if champion else "no champion"
            metrics = _metrics(opened, version)
            rows.append((f"{model}:{version.version}", status, at, metrics, against, reference.short))
    if rows:
        print_rows(("version", "status", "registered", "metrics", "judged against", "model"), rows)
    else:
        which = f"model made from {trained_on}" if trained_on else "models"
        typer.echo(f"{opened.address} has no registered {which}. A training run registers one that passes the gate.")


@app.command()
def show(model: ModelArgument = "", store: StoreOption = "") -> None:
    """Show a model's ledger, or of NAME:2 or NAME@champion what this version was made from."""
    target = named(open_store(store), model)
    if not target.number:
        acts = [explanation.act_of(place, record) for place, record in enumerate(target.ledger.records(), start=1)]
        rows = [(str(act.number), act.at, act.by, act.what, act.reason) for act in acts]
        print_rows(("record", "at", "by", "what", "reasons"), rows)
        return
    version, state = target.version, target.ledger.state()
    last = state.last_verdict(version.model)
    uses = f"judged {state.uses_before(last[0], last[1].subject):,} other candidates before" if last else ""
    print_facts(
        [
            ("version", f"{target.ledger.model_name}:{target.number}"),
            ("status", state.stage_of(version)),
            ("model", version.model),
            ("evaluation", version.evaluation),
            ("metrics", _metrics(target.ledger.store, version)),
            ("verdict", last[1].summary if last else ""),
            ("judged against", (last[1].champion if last else "") or "no champion"),
            ("test set", uses),
            *(("made from", identity) for identity in version.lineage),
        ]
    )


def _metrics(store: ArtifactStore, version: ModelVersion) -> str:
    """The first metrics of the version's evaluation; empty if the evaluation is gone."""
    return "  ".join(
        f"{value.name} {figure(value.value)}" for value in numbers_of(store, version.evaluation)[:_METRICS]
    )


@app.command("promote")
def promote_version(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}. Default: the one in staging.")] = "",
    reason: ReasonOption = "",
    override: Annotated[bool, typer.Option("--override", help="Although the gate refused it; needs --reason.")] = False,
    to: Annotated[str, typer.Option(help=f"The alias that it gets: {', '.join(ALIASES)}.")] = CHAMPION,
    store: StoreOption = "",
) -> None:
    """Make a version the champion, or canary or shadow. One that was rolled back needs its number and a reason."""
    opened = open_store(store)
    _act(opened, named(opened, model), "promote", reason, override=override, to=to)


@app.command("approve")
def approve_version(model: ModelArgument = "", reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Sign the last verdict on a version (default: the one in staging), so that it may be promoted for some days."""
    _sign(store, model, "approve", reason)


@app.command("reject")
def reject_version(model: ModelArgument = "", reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Sign that a version (default: the one in staging) may not be promoted, whatever the gate said."""
    _sign(store, model, "reject", reason)


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
    request = ExemptRequest(model=str(find(opened, model)), rule=rule, until=day, reason=reason)
    result = exempt(request, opened)
    typer.echo(f"{Reference.parse(result.exemption.model).short} is {result.exemption}")
    typer.echo(f"Run the training pipeline again: it registers the candidate of {result.model_name} with it.")


def _sign(store: str, model: str, word: str, reason: str) -> None:
    opened = open_store(store)
    target = named(opened, model)
    name = target.ledger.model_name
    body = {"model_name": name, "version": target.number, "word": word, "reason": reason}
    result = approve(ApproveRequest.model_validate(body), opened)
    typer.echo(f"{name}:{result.version} is {result.decision} by {result.by}; verdict sha256-{result.verdict[:12]}")
    champions = target.ledger.state().champions
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
    opened = open_store(store)
    target = named(opened, model)
    _act(opened, VersionName(target.ledger, target.number or target.ledger.state().champion), "rollback", reason)


@app.command()
def archive(model: ModelArgument, reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Keep a version for the record only: it cannot be promoted any more."""
    opened = open_store(store)
    target = named(opened, model)
    if not target.number:
        raise ConfigurationError(f"archive: expected a version, such as {target.ledger.model_name}:2, found {model!r}.")
    _act(opened, target, "archive", reason)


def _act(store: ArtifactStore, target: VersionName, action: str, reason: str, **more: Any) -> None:
    name = target.ledger.model_name
    body = {"model_name": name, "action": action, "version": target.number, "reason": reason} | more
    result = promote(PromoteRequest.model_validate(body), store)
    if result.decision.endswith("already"):
        typer.echo(f"{name}:{result.version} is {result.decision}; nothing was changed.")
        return
    champion = Reference.parse(result.champion).short if result.champion else "none"
    alias = f" to {more['to']}" if "to" in more else ""
    typer.echo(f"{name}:{result.version} is {result.decision}{alias}; the champion is {champion}")


@app.command()
def explain(
    model: VersionArgument,
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture of the lineage to this file.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Explain a version: which data, code, configuration, environment, seeds, parents, who and why; and its lineage."""
    from gatehouse.registry.report import explanation_page, lineage_picture

    explained = explanation.explain(explanation.ExplainRequest(model=model), open_store(store))
    name = f"{explained.name}:{explained.version}"
    if svg is not None:
        _write(svg, lineage_picture(explained.nodes, explained.edges, name, alone=True))
    if as_json:
        print_json(explained.model_dump(mode="json"))
        return
    page = html or cache_folder() / "pages" / "models" / f"{explained.name}-{explained.version}.html"
    _write(page, explanation_page(explained))
    typer.echo(f"{name} is {explained.stage}; the gate says {explained.verdict}")
    for answer in explained.answers:
        typer.echo(f"\n{answer.question}")
        print_facts(answer.facts or [("not known", answer.missing)], indent="  ")
    typer.echo("\nnumbers on the test part")
    print_facts([(value.name, _with_interval(value)) for value in explained.numbers], indent="  ")
    typer.echo("\nwhat happened to it")
    history = [(act.at, f"{act.what} ({act.by}){': ' if act.reason else ''}{act.reason}") for act in explained.acts]
    print_facts(history, indent="  ")
    typer.echo(f"\npage: {page}")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="NAME:2 or NAME@champion.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare two versions: every number, and what changed in data, features, configuration, code and environment."""
    compared = explanation.compare(explanation.CompareRequest(first=first, second=second), open_store(store))
    if as_json:
        print_json(compared.model_dump(mode="json"))
        return
    names = (compared.first, compared.second)
    numbers = [
        (pair.name, *(_with_interval(value) if value else "" for value in (pair.first, pair.second)))
        for pair in compared.numbers
    ]
    print_rows(("on the test part", *names), numbers)
    if compared.numbers and not compared.same_test:
        typer.echo(explanation.DIFFERENT_ROWS)
    typer.echo()
    changes = [(change.part, change.name, short(change.first), short(change.second)) for change in compared.changes]
    print_rows(("what changed" if changes else "nothing changed", "", *names), changes)


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
    written = " ".join(f"{tag_name}={value}" for tag_name, value in version.tags) if version else ""
    typer.echo(f"{name}:{number} {written or 'has no tags'}")


def _with_interval(value: Number) -> str:
    bounds = "" if value.low is None else f" [{number(value.low)}, {number(value.high)}]"
    return f"{number(value.value)}{bounds}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@app.command()
def reproduce(
    model: VersionArgument,
    into: Annotated[Path | None, typer.Option(help="An empty folder for the store; default: a temporary one.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Rebuild a version from its snapshot in a clean store, and prove that its weights are the same."""
    result = reproduction.reproduce(reproduction.ReproduceRequest(model=model, into=str(into or "")), open_store(store))
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        work = f"{result.copied} artifacts were copied, {result.made} made again, by {result.processes} process(es)"
        same = "was made again to the bit" if result.same else "differs"
        typer.echo(f"{result.model} {same}: {work}.\nweights sha256-{result.weights}")
    if result.same:
        return
    if not as_json:
        typer.echo(f"        sha256-{result.weights_again}\nthe first difference: {result.first}")
        typer.echo(f"scores differ by {result.largest:.3g} at most, {result.mean:.3g} in the mean")
        differences = [(item.part, item.name, item.first, item.second) for item in result.differences]
        print_rows(("what differs", "", "then", "now"), differences)
    raise typer.Exit(1)


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
    if as_json:
        print_json({"version": version.version, "model": version.model, "path": str(version.path), "age": version.age})
    else:
        typer.echo(str(version.path))


@app.command()
def card(
    model: VersionArgument,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead of the terminal.")] = None,
    store: StoreOption = "",
) -> None:
    """Write a version's model card, in Markdown with the YAML head that Hugging Face's hub reads."""
    opened = open_store(store)
    text = model_card(explanation.explain(explanation.ExplainRequest(model=model), opened), opened)
    if out is None:
        typer.echo(text)
    else:
        _write(out, text)
        typer.echo(f"card: {out}")


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
    target = named(opened, model)
    exported = export_model(opened, target.version.model, tolerance)
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
    output: Annotated[Literal["table", "json"], typer.Option("--format", help="How it is printed.")] = "table",
    store: StoreOption = "",
) -> None:
    """Show what a policy would have said of every earlier candidate, from their evaluations; no model is run."""
    problems: list[str] = []
    text = read_text(policy, str(policy), problems)
    gate_policy = None if text is None else load_model(str(policy), text, GatePolicy, problems)
    if gate_policy is None:
        raise ConfigurationError("\n".join(problems))
    opened = open_store(store)
    candidates = named(opened, on)
    trials = tried(opened, gate_policy, candidates)
    if output == "json":
        print_json([trial.model_dump(mode="json") for trial in trials])
        return
    rows, name = [], candidates.ledger.model_name
    for trial in trials:
        shown = f"{name}:{trial.version}" if trial.version else Reference.parse(trial.model).short
        why = [*trial.broken, *(f"warning: {text}" for text in trial.warnings)]
        why += [f"not measured then: {text}" for text in trial.not_measured]
        rows.append((shown, Reference.parse(trial.evaluation).short, trial.then, trial.now, "\n".join(why)))
    print_rows(("version", "evaluation", "verdict then", "under this policy", "why"), rows)
