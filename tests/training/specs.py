"""Trainings for tests, by the last parts of their settings' names: `network(hidden=(8,), epochs=3)`."""

from typing import Any, TypeVar

from gatehouse.training.spec import NetworkTraining, TreesTraining, changed, train_spec

Training = TypeVar("Training", NetworkTraining, TreesTraining)
_OF_LOSS = {"delta", "group", "sample_weight", "class_weights"}


def network(architecture: str = "tabular_mlp", **settings: Any) -> NetworkTraining:
    """The training of a network, on one process unless told otherwise."""
    spec = train_spec({"model": {"architecture": architecture}})
    assert isinstance(spec, NetworkTraining)
    return vary(spec, **{"processes": 1} | settings)


def trees(**settings: Any) -> TreesTraining:
    """The training of gradient-boosted trees."""
    spec = train_spec({"model": {"architecture": "xgboost"}})
    assert isinstance(spec, TreesTraining)
    return vary(spec, **settings)


def vary(spec: Training, **settings: Any) -> Training:
    """A training with other settings; `loss` is a kind, whose settings stand beside it."""
    body = spec.model_dump()
    kept = {"kind": settings.pop("loss")} if "loss" in settings else body["loss"]
    named: dict[str, Any] = {"loss": kept | {name: settings.pop(name) for name in _OF_LOSS & settings.keys()}}
    for name, value in settings.items():
        places = [f"{group}.{name}" for group, inner in body.items() if isinstance(inner, dict) and name in inner]
        if name in body and not places:
            places = [name]
        assert len(places) == 1, f"{name}: expected one setting of this name, found {places}"
        named[places[0]] = value
    found = changed(spec, named)
    assert isinstance(found, type(spec))
    return found


def architecture(
    spec: NetworkTraining | TreesTraining, width: int, cardinalities: list[int], outputs: int = 1
) -> dict[str, Any]:
    """What `model.json` says of a model of these sizes."""
    return {
        "model": spec.model.model_dump(mode="json"),
        "loss": spec.loss.kind,
        "width": width,
        "cardinalities": cardinalities,
        "outputs": outputs,
    }
