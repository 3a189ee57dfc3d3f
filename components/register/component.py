"""The KFP interface of the register stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Register behind the gate", shows_models=True)
def register(
    store: str,
    model_name: str,
    model: str,
    evaluation: str,
    summary: dsl.Output[dsl.Markdown],
) -> NamedTuple("Outputs", [("decision", str), ("version", int), ("alias", str), ("verdict", str), ("reasons", list)]):
    """Record the gate's verdict in the ledger; a candidate that passed becomes a version with its aliases.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        model: Reference of the candidate.
        evaluation: Reference of the evaluation that judged it.

    Returns:
        decision: The decision about the candidate.
        version: Its version; 0 for none.
        alias: The highest alias that it holds; empty for none.
        verdict: pass, or the decision to report to a person.
        reasons: Why the gate refused, or which command to run next.
        summary: Decision and reasons for the UI, and the version's model card.
    """
    from gatehouse.registry.card import registration_summary
    from gatehouse.registry.stage import register as enter
    from gatehouse.store.parameters import open_store, request_of

    request = request_of(enter, model_name=model_name, model=model, evaluation=evaluation)
    opened = open_store(store)
    result = enter(request, opened)
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write(registration_summary(model_name, result, opened))
    return (result.decision, result.version, result.alias, result.verdict, list(result.reasons))
