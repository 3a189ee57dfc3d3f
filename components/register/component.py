"""The KFP interface of the registration of a model, whatever trained it."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Register behind the gate", shows_models=True)
def register(
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    model_name: str,
    version: dsl.Output[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    data: str = "",
    code: str = "",
    configuration: dict = {},
    environment: str = "",
    seed: str = "",
    parents: str = "",
    reason: str = "",
    pickle_reason: str = "",
    store: str = "",
) -> NamedTuple(
    "Outputs",
    [
        ("decision", str),
        ("number", int),
        ("alias", str),
        ("verdict", str),
        ("reasons", list),
        ("warnings", list),
    ],
):
    """Record the verdict on a model in the ledger; one that passed becomes a version with its aliases.

    The policy is that of the evaluation. A repeat changes nothing, and equal files are the same model. What nobody says
    of a model that Gatehouse did not train is shown as not stated, and never refused for that.

    Args:
        model: The candidate: of train, or a file or folder of files. What may run code when it is loaded, as a pickle
            does, is refused.
        evaluation: The evaluation of the same model, of evaluate.
        model_name: Name under which models are registered: lower-case letters, digits and hyphens.
        data: Where the training data of a model of your own is from.
        code: Where its code is, as an address and a commit.
        configuration: Settings of its training.
        environment: Image, hardware and versions of its training.
        seed: Its seed.
        parents: What it was made from, as the model that was fine-tuned.
        reason: Why it is registered.
        pickle_reason: Why its files may run code when they are loaded, as pickles do; the model card says so.
        store: Address of the artifact store; empty for that of the evaluation.

    Returns:
        decision: The decision about the model: approved, awaiting approval, refused, and so on
        number: Its version; 0 for none.
        alias: The highest alias that it holds; empty for none.
        verdict: pass, or the decision to report to a person.
        reasons: Why the gate refused, or which command to run next.
        warnings: Exemptions, rules that are broken and only warn, another policy than the champion's, and files that
            may run code.
        version: The registered model; nothing if it was refused.
        summary: Decision and reasons, and the version's model card.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask
    from gatehouse.errors import ConfigurationError
    from gatehouse.registry.card import registration_summary
    from gatehouse.registry.stage import register as enter
    from gatehouse.store.parameters import as_written

    task = ComponentTask(store, evaluation)
    if not task.kept:
        raise ConfigurationError(
            "store: expected the address of the artifact store that holds the registry, found none."
        )
    trained, judged = task.find(model, "models"), task.find(evaluation, "evaluations")
    asked = {"model_name": model_name, "evaluation": judged, "judged": "" if judged else evaluation.path}
    if trained:
        asked |= {"model": trained}
    else:
        statements = {"data": data, "code": code, "environment": environment, "parents": parents, "reason": reason}
        statements["pickle_reason"] = pickle_reason
        asked |= {"path": model.path, "statements": {name: text for name, text in statements.items() if text}}
        asked |= {"settings": as_written(configuration) | ({"seed": seed} if seed else {})}
    result = task.run(enter, **asked)
    Path(summary.path).write_text(registration_summary(model_name, result, task.store), encoding="utf-8")
    facts = {"model_name": model_name, "version": str(result.version), "alias": result.alias}
    task.give(version, result.model if result.version else "", {**facts, "decision": result.decision})
    decision = (result.decision, result.version, result.alias, result.verdict)
    return (*decision, list(result.reasons), list(result.warnings))
