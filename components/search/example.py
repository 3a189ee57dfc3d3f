"""Searches the strength of regularisation of a scikit-learn classifier on the digits."""

from kfp import dsl

from gatehouse.components import search

SCRIPT = """
import sys
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

train, test, labels, expected = train_test_split(*load_digits(return_X_y=True), random_state=0)
model = SGDClassifier(alpha=float(sys.argv[1]), random_state=0)
for epoch in range(1, 6):
    model.partial_fit(train, labels, range(10))
    print(f"epoch={epoch} accuracy={model.score(test, expected)}")
"""
EXPERIMENT = {
    "objective": {"metric": "accuracy", "direction": "maximize"},
    "parameters": [{"name": "alpha", "type": "double", "min": 1e-5, "max": 10, "log": True}],
    "early_stopping": "MedianPruner",
    "steps_per_trial": 5,
}


@dsl.pipeline
def example() -> None:
    """Try eight strengths, and stop those that are worse than the median of the others."""
    search(script=SCRIPT, command=["python", "script.py", "{alpha}"], spec=EXPERIMENT)
