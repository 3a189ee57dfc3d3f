"""The KFP interface of the stage that registers a model which something else trained."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Register a model behind the gate", shows_models=True, artifacts=("evaluation",))
def register_model(
    store: str,
    model_name: str,
    model: dsl.Input[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    evaluation: dsl.Input[dsl.Artifact] = None,
    evaluation_reference: str = "",
    data: str = "",
    code: str = "",
    configuration: dict = {},
    environment: str = "",
    seed: str = "",
    parents: str = "",
    reason: str = "",
    pickle_reason: str = "",
) -> NamedTuple(
    "Outputs",
    [
        ("decision", str),
        ("version", int),
        ("alias", str),
        ("verdict", str),
        ("reasons", list),
        ("warnings", list),
        ("reference", str),
    ],
):
    """Register the files of a model that anything trained, behind the gate: equal files are the same model.

    What nobody says of it is shown as not stated, and never refused for that.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered: lower-case letters, digits and hyphens.
        model: Its file, or a folder of files. What may run code when it is loaded, as a pickle does, is refused.
        evaluation: The evaluation that judge wrote, with the same model.
        evaluation_reference: Its reference in the store, in place of evaluation.
        data: Where the training data is from.
        code: Where the code is, as an address and a commit.
        configuration: Settings of the training.
        environment: Image, hardware and versions of the training.
        seed: Its seed.
        parents: What it was made from, as the model that was fine-tuned.
        reason: Why it is registered.
        pickle_reason: Why its files may run code when they are loaded, as pickles do; the model card says so.

    Returns:
        decision: The decision about the model.
        version: Its version; 0 for none.
        alias: The highest alias that it holds; empty for none.
        verdict: pass, or the decision to report to a person.
        reasons: Why the gate refused, or which command to run next.
        warnings: Exemptions, rules that are broken and only warn, another policy than the champion's, and files that
            may run code.
        reference: Address of the model in the store.
        summary: Decision and reasons for the UI, and the version's model card.
    """
    from gatehouse.registry.card import registration_summary
    from gatehouse.registry.stage import register as enter
    from gatehouse.store.parameters import as_written, checked, open_store

    opened = open_store(store)
    statements = {"data": data, "code": code, "environment": environment, "parents": parents, "reason": reason}
    statements["pickle_reason"] = pickle_reason
    asked = {
        "model_name": model_name,
        "path": model.path,
        "evaluation": evaluation_reference,
        "judged": evaluation.path if evaluation else "",
        "statements": {name: text for name, text in statements.items() if text},
        "settings": as_written(configuration) | ({"seed": seed} if seed else {}),
    }
    result = enter(checked("register_model", enter.request, asked), opened)
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write(registration_summary(model_name, result, opened))
    decision = (result.decision, result.version, result.alias, result.verdict)
    return (*decision, list(result.reasons), list(result.warnings), opened.address_of(result.model))
