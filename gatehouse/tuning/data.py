"""The data that the trials of an experiment are trained on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrialData:
    """References of the data of every trial."""

    training_set: str
    split: str
    transformation: str
