"""A process with a controller that its parent kills: `python -m tests.components.tuning.killed_controller STORE`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tuning.controller import Controller
from gatehouse.components.tuning.opening import opened_study
from gatehouse.components.tuning.runner import Event, Succeeded
from tests.components.tuning.stand_in import SPACES, STEPS, Scripted, experiment, trained

if __name__ == "__main__":
    folder = Path(sys.argv[1])

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        """A trial that notes in a file what becomes of it."""
        for event in trained(number, parameters):
            if isinstance(event, Succeeded):
                with (folder.parent / "log").open("a") as log:
                    log.write(f"done {number}\n")
            yield event

    spec = experiment(max_trial_count=12, parameters=SPACES["tpe"], early_stopping="median")
    with opened_study(ArtifactStore.open(folder).objects, "k1", spec, 3, STEPS) as study:
        Controller(study, Scripted(script)).run()
