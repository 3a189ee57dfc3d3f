"""What a training may be: each model has its own settings, and an error names whose a setting is."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.store.identity import identity_digest, identity_of
from gatehouse.training.model_spec import MODELS
from gatehouse.training.spec import (
    NetworkTraining,
    TreesTraining,
    beginning,
    changed,
    has_setting,
    operation_of,
    own_metric,
    own_names,
    run_as,
    settings_of,
    train_spec,
)
from tests.training.specs import network, trees

FT = {"architecture": "ft_transformer", "heads": 4}
XGBOOST = {"architecture": "xgboost"}
PAIRWISE = {"kind": "pairwise", "group": "day"}
TENSOR, PIPELINE = {"processes": 2, "tensor": 2}, {"processes": 2, "pipeline": 2}


@pytest.mark.parametrize(
    ("body", "where", "message"),
    [
        ({"model": {"max_depth": 3}}, "model.max_depth", "is a setting of xgboost, and not of tabular_mlp"),
        (
            {"model": XGBOOST, "optimizer": {"clip_norm": 1}},
            "optimizer.clip_norm",
            "ft_transformer, builder, and not of xgboost",
        ),
        (
            {"model": XGBOOST, "stopping": {"epochs": 3}},
            "stopping.epochs",
            "ft_transformer, builder, and not of xgboost",
        ),
        ({"model": XGBOOST, "compute": {"device": "cuda"}}, "compute", "ft_transformer, builder, and not of xgboost"),
        ({"stopping": {"rounds": 3}}, "stopping.rounds", "a setting of xgboost, and not"),
        ({"model": FT | {"hidden": [8]}}, "model.hidden", "a setting of tabular_mlp, and not of"),
        (
            {"loss": {"kind": "mse", "class_weights": "balanced"}},
            "loss.class_weights",
            "is no setting of mse",
        ),
        ({"epochs": 1}, "epochs", "there is no such setting (did you mean stopping.epochs?)"),
        ({"model": {"architecture": "mine"}}, "", "expected one of linear, tabular_mlp, ft_tra"),
        ({"model": "xgboost"}, "model", "valid dictionary"),
        ({"loss": {"kind": "mae"}}, "loss", "expected one of binary, multiclass, mse, huber, pairwise"),
        ({"parallelism": {"processes": 3, "tensor": 2}}, "parallelism", "must be a multiple of tensor 2"),
        ({"model": FT, "parallelism": {"processes": 8, "tensor": 8}}, "", "model.heads must be a multiple"),
        ({"model": FT | {"feed_forward": 17}, "parallelism": TENSOR}, "", "model.feed_forward must be"),
        ({"model": {"hidden": [7]}, "parallelism": TENSOR}, "", "model.hidden must be"),
        ({"model": FT, "parallelism": {"processes": 4, "pipeline": 4}}, "", "more than the model's 3 blocks"),
        ({"parallelism": PIPELINE}, "", "data.accumulation 1 must be at least parallelism.pipeline 2"),
        ({"parallelism": PIPELINE, "loss": PAIRWISE}, "", "micro-batches of a ranking differ"),
        ({"stopping": {"metric": "ndcg"}}, "", "ndcg"),
        ({"model": XGBOOST, "stopping": {"metric": "r2"}}, "", "r2"),
        ({"model": XGBOOST, "loss": PAIRWISE | {"sample_weight": "w"}}, "", "does not weigh single rows"),
        ({"data": {"batch_size": 2, "accumulation": 3}}, "data", "accumulation 3 is more than the batch_size 2"),
        ({"model": FT | {"token_size": 9}}, "model", "token_size 9 must be a multiple of heads 4"),
        ({"optimizer": {"changes": [{"epoch": 10}]}}, "", "epochs below stopping.epochs 10, found 10"),
        ({"optimizer": {"changes": [{"epoch": 2}, {"epoch": 2}]}}, "optimizer", "ascending order, each once"),
        ({"optimizer": {"changes": [{"epoch": 1, "warmup": 0}]}}, "optimizer.changes.0.warmup", "no such setting"),
        ({"compute": {"precision": "fp16", "compile": True}}, "compute", "fp16 on a CPU is not compiled"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(body: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        train_spec(body)
    [error] = caught.value.errors()
    assert ".".join(map(str, error["loc"])) == where and message in error["msg"]


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        train_spec({"model": {"hidden": [], "blocks": 2}, "seed": -1})
    assert {error["loc"] for error in caught.value.errors()} == {("model", "hidden"), ("model", "blocks"), ("seed",)}


def test_the_architecture_says_which_settings_there_are() -> None:
    assert isinstance(train_spec({}), NetworkTraining)
    boosted = train_spec({"model": XGBOOST})
    assert isinstance(boosted, TreesTraining)
    assert (boosted.stopping.rounds, boosted.optimizer.learning_rate, boosted.parallelism.processes) == (300, 0.1, 1)
    own = train_spec({"model": {"architecture": "mine.nets:build", "options": {"depth": 3}}})
    assert own_names(own) == ("mine.nets:build",) and own_names(boosted) == ()
    assert [own_metric(network(loss="huber")), own_metric(trees(metric="roc_auc"))] == ["huber", "roc_auc"]
    assert has_setting("xgboost", "optimizer.learning_rate") and not has_setting("xgboost", "optimizer.warmup")
    models = [name for name in MODELS if has_setting(name, "model.dropout")]
    assert models == ["tabular_mlp", "ft_transformer"] and has_setting("mine.nets:build", "model.options")


@pytest.mark.parametrize("spec", [network(), network("ft_transformer"), trees(loss="huber", delta=2.0)])
def test_a_training_comes_back_from_its_json_and_from_its_identity(spec: NetworkTraining | TreesTraining) -> None:
    assert train_spec(spec.model_dump(mode="json")) == spec
    assert train_spec(identity_of(spec)) == spec


def test_how_a_training_is_run_is_no_part_of_what_it_is() -> None:
    run = {"operation.timeout_minutes": 600, "operation.prefetch": 0, "checkpoints.every_steps": 3}
    other = changed(network(), run)
    assert identity_digest(other) == identity_digest(network())
    assert identity_digest(changed(network(), {"parallelism.threads": 2})) != identity_digest(network())
    assert run_as(identity_of(network()), operation_of(other)) == other
    grown = run_as(settings_of(trees(rounds=9)), operation_of(other))
    assert grown == trees(rounds=9, timeout_minutes=600, every_steps=3), "trees have no steps to prefetch"


def test_without_changes_a_training_is_what_it_was_and_its_beginning_has_the_changes_until_then() -> None:
    assert identity_of(network(learning_rate=0.01))["optimizer"] == {"learning_rate": 0.01}
    changing = network(changes=[{"epoch": 2, "clip_norm": 0.5}, {"epoch": 4, "learning_rate": 0.5}])
    assert identity_of(changing)["optimizer"]["changes"][0] == {"epoch": 2, "clip_norm": 0.5}
    assert identity_digest(beginning(changing, 2)) == identity_digest(network(epochs=2))
    assert beginning(changing, 3) == network(epochs=3, changes=[{"epoch": 2, "clip_norm": 0.5}])
    assert has_setting("linear", "optimizer.changes") and not has_setting("linear", "optimizer.changes.epoch")


def test_other_values_keep_the_rest() -> None:
    deeper = changed(trees(row_share=0.5), {"model.max_depth": 5, "optimizer.learning_rate": 0.2})
    assert isinstance(deeper, TreesTraining)
    assert (deeper.model.max_depth, deeper.optimizer.learning_rate, deeper.optimizer.row_share) == (5, 0.2, 0.5)
    model = {"architecture": "ft_transformer", "blocks": 1}
    assert changed(network(batch_size=9), {"model": model}) == network("ft_transformer", batch_size=9, blocks=1)
    with pytest.raises(ValidationError, match="not of xgboost"):
        changed(network(), {"model": XGBOOST})
