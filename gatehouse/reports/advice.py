"""What a person can do about each rule of the gate that refused a candidate. No verdict depends on these words."""

from collections.abc import Sequence

_TOO_FEW = {
    ("test rows",): "Bring more rows, or give the test part more of them (`split` in project.yaml); lower the limit in "
    "the policy only if a chance result may become champion",
    ("unseen rows",): "Test on rows that neither model was trained on, such as newer ones (`split` in project.yaml)",
}
"""Of the rules that say whether the test rows can tell anything; each key holds the names of one family of rules."""
_ON_TEST_ROWS = {
    ("bar",): "Look for features that tell more, bring more rows, or give the search more trials; lower a bar in the "
    "policy only where less is enough for its use",
    ("baseline",): "It was not shown to be better than a linear model on the same features: look for features that "
    "tell more, bring more rows, or give the search more trials and smaller models (`tuning` in project.yaml). Where "
    "a linear model is the best that these features give, train one: `model.architecture: linear` in project.yaml",
    ("guessing",): "It was not shown to know anything of single rows: its predictions fit other rows as well. Bring "
    "more rows, or features that tell something of the label; where `evaluation.resample_by` is set, the test part "
    "needs 20 of its units at least",
    ("leakage alarm",): "The model may have been told the outcome, or have seen rows like those of test. See in the "
    "report of the leakage check which features tell most, and take out those that are not known at the decision; mend "
    "what the checks of the split warn of; if a model can be that good, raise leakage_alarm in policy.yaml, the "
    "alarm of the whole model (that of single features is features.leakage_alarm in project.yaml)",
    ("champion", "improvement"): "The champion stays. Train on newer or more rows; what may be lost, or must be won, "
    "stands under `champion` in the policy",
    ("slices", "slice"): "Bring more rows of these slices, or features that tell them apart; the limits stand under "
    "`slices` in the policy",
    ("fairness",): "See the groups in the report of the evaluation: bring more rows of those with few, or look which "
    "features act for the protected column",
    ("regressions", "regression"): "Compare both models in the report of the evaluation; what may be lost stands under "
    "`regressions` in the policy",
}
"""Of the rules that look at what was measured on the test rows."""
_OTHERS = {
    ("validation", "leakage", "split checks", "warnings"): "The report of that check names the rows; mend the data, or "
    "change its limit where it stands in the project",
    ("latency", "model size", "memory"): "Train a smaller model, or change the limits under `cost` in the policy",
    ("drift",): "See which features moved, and train on newer rows (`split` in project.yaml), or change max_psi in the "
    "policy",
    ("integration",): "Run the stage `integrate` (`integration` in project.yaml), and mend what its report shows",
    ("lineage",): "Train with a pipeline, which gives every stage its inputs",
    ("training age",): "Train up to a later time (`split` in project.yaml)",
}

_UNREAD = "unseen rows: expected that each model tells which rows it was fitted on"
_UNREAD_ADVICE = (
    "Bring back what is named here, as from a copy of the store, and run again; else train that "
    "model anew, or let the rule `unseen rows` warn (`rules` in the policy)"
)
"""Of the lineage that cannot be read, where no other test rows help."""


def advised(reasons: Sequence[str]) -> list[str]:
    """Why the gate refused a candidate, each family's last broken rule followed by what a person can do.

    Where the test rows are too few to tell, only that, and what was not measured on them, has advice. Anything that is
    no broken rule stays as it is.
    """
    found = [_family(reason) for reason in reasons]
    few = any(names in _TOO_FEW for names in found)
    advice = _TOO_FEW | _OTHERS | ({} if few else _ON_TEST_ROWS)
    last = {names: index for index, names in enumerate(found)}
    return [
        f"{reason.rstrip('.')}. {_UNREAD_ADVICE if reason.startswith(_UNREAD) else advice[names]}"
        if names in advice and last[names] == index
        else reason
        for index, (reason, names) in enumerate(zip(reasons, found, strict=True))
    ]


def _family(reason: str) -> tuple[str, ...]:
    """The names of the family whose rule a reason tells of; the longest counts, as `leakage` begins `leakage alarm`."""
    families = _TOO_FEW | _ON_TEST_ROWS | _OTHERS
    named = {name: names for names in families for name in names if reason.startswith((f"{name}:", f"{name} "))}
    return named[max(named, key=len)] if named else ()
