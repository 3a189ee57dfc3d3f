"""What the trials of an experiment are trained on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrialData:
    """References of what every trial is trained on; without a transformation, the default one is fitted."""

    training_set: str
    split: str
    transformation: str = ""
