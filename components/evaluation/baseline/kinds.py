"""The kinds of baseline, by the name that a task gives them."""

from gatehouse.components.evaluation.baseline.logistic_regression import LogisticRegression

BASELINES = {"logistic_regression": LogisticRegression}
