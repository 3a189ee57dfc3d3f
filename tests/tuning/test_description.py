"""What an experiment is, as data, has the form that its page and commands read."""

from gatehouse.store.canonical import canonical_json
from gatehouse.tuning.description import described
from gatehouse.tuning.reports.page import drawn
from gatehouse.tuning.reports.shown import Shown
from gatehouse.tuning.spec import ExperimentSpec


def test_a_page_reads_what_an_experiment_is() -> None:
    spec = ExperimentSpec.model_validate(
        {
            "objective": [{"metric": "roc_auc", "goal": 0.8}, "size_bytes"],
            "constraints": [{"measure": "latency_ms", "at_most": 5}],
            "parameters": [
                {"name": "model.architecture", "type": "categorical", "choices": ["tabular_mlp", "xgboost"]},
                {
                    "name": "model.hidden", "type": "categorical", "choices": [[64], [128, 64]],
                    "when": {"model.architecture": "tabular_mlp"},
                },
            ],
        }
    )  # fmt: skip
    body = described(spec, 6)
    canonical_json(body)
    shown = Shown("flights", body | {"ended": ""}, [], "Under way")
    assert [(one.metric, one.minimize, one.goal) for one in shown.objectives] == [
        ("roc_auc", False, 0.8),
        ("size_bytes", True, None),
    ]
    trial = {"number": 0, "parameters": {"model.architecture": "tabular_mlp", "model.hidden": [128, 64]}}
    assert [one.of(trial) for one in shown.dimensions] == [0.0, 1.0]
    assert "steps of a full trial" in drawn(shown)
