"""Advice for each rule of the gate that refused a candidate. No verdict depends on these words."""

from collections.abc import Sequence

ADVICE = {
    "test rows": "Bring more rows, or a larger test part (`split` in project.yaml); lower the limit in the policy only "
    "if a chance result may become champion",
    "unseen rows": "Test on rows that neither model was trained on, such as newer ones (`split` in project.yaml). If "
    "an artifact is missing, restore it from a copy of the store and run again",
    "bar": "Look for better features, bring more rows, or give the search more trials; lower a bar in the policy only "
    "if less is enough for its use",
    "baseline": "Look for better features, bring more rows, or give the search more trials and smaller models "
    "(`tuning` in project.yaml). If a linear model is as good, train one: `model.architecture: linear` in project.yaml",
    "guessing": "Bring more rows, or features that say something about the label; with `evaluation.resample_by`, the "
    "test part needs at least 20 of its units",
    "leakage alarm": "The features may contain the outcome, or the train rows be like the test rows. Take out features "
    "of the leakage report that are not known at the decision, and follow the warnings of the split; if a model can be "
    "this good, raise leakage_alarm in policy.yaml",
    "champion": "The champion stays. Train on newer or more rows; the tolerance is `champion` in the policy",
    "slice": "Bring more rows of these slices, or features that tell them apart; the limits are `slices` in the policy",
    "fairness": "See the groups in the report of the evaluation: bring more rows of small ones, or look for features "
    "that stand in for the protected column",
    "regression": "Compare both models in the report of the evaluation; the tolerance is `regressions` in the policy",
    "check": "The report of that check names the rows; correct the data, or change the limit in the project",
    "cost": "Train a smaller model, or change the limits under `cost` in the policy",
    "drift": "See which features moved, and train on newer rows (`split` in project.yaml), or change max_psi in the "
    "policy",
    "integration": "Run the stage `integrate` (`integration` in project.yaml), and correct what its report shows",
    "lineage": "Train with a pipeline, which gives every stage its inputs",
    "training age": "Train up to a later time (`split` in project.yaml)",
}
_SHARED = {
    **dict.fromkeys(("validation", "leakage", "split checks", "warnings"), "check"),
    **dict.fromkeys(("latency", "model size", "memory"), "cost"),
    **{"floor": "champion", "slices": "slice", "regressions": "regression"},
}
"""Rules that share the advice of another."""


def advised(reasons: Sequence[str]) -> list[str]:
    """Why the gate refused a candidate; the last broken rule of each kind is followed by what a person can do."""
    kinds = [_kind(reason) for reason in reasons]
    last = {kind: index for index, kind in enumerate(kinds) if kind}
    return [
        f"{reason.rstrip('.')}. {ADVICE[kind]}" if kind and last[kind] == index else reason
        for index, (reason, kind) in enumerate(zip(reasons, kinds, strict=True))
    ]


def _kind(reason: str) -> str:
    """The rule that a reason begins with, the longest one, as `leakage` also begins `leakage alarm`; empty for none."""
    names = [name for name in (*ADVICE, *_SHARED) if reason.startswith((f"{name}:", f"{name} "))]
    name = max(names, key=len, default="")
    return _SHARED.get(name, name)
