"""A model with versions that really score, and their aliases: what tests of traffic and its log share."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gatehouse.registry.ledger import Ledger, Record, Verdict, VerdictSubject
from gatehouse.server.inference import ServedModel
from gatehouse.server.traffic import Traffic
from gatehouse.store.store import ArtifactStore
from tests.evaluation.candidates import publish_model
from tests.training.synthetic import CATEGORICAL, NUMERIC, publish_split, publish_training_set, table

KINDS = dict.fromkeys(NUMERIC, "FP64") | dict.fromkeys(CATEGORICAL, "BYTES")


def tensors(rows: pa.Table, *, keys: bool = False) -> list[dict[str, Any]]:
    """The inputs of a request for rows, perhaps with their entity key, which comes last."""
    kinds = KINDS | ({"flight_id": "BYTES"} if keys else {})
    return [
        {"name": name, "datatype": kind, "shape": [rows.num_rows], "data": rows[name].to_pylist()}
        for name, kind in kinds.items()
    ]


def arms_of(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Arm and version of each row of an answer."""
    return body["parameters"]["arms"], body["parameters"]["versions"]


@dataclass
class Live:
    """A store with a ledger of versions."""

    store: ArtifactStore
    models: list[str]

    def promote(self, version: int, alias: str, share: float | None = None) -> None:
        """Give a version an alias, whatever the gate says of it."""
        records = [Record.model_validate({"kind": "promoted", "version": version, "alias": alias, "share": share})]
        Ledger(self.store, "delays").extend(lambda _: records.pop() if records else None)

    def traffic(self) -> Traffic:
        return Traffic.of(self.store, Ledger(self.store, "delays"), online=False)

    def model(self, version: int) -> ServedModel:
        return ServedModel.load(self.store, "delays", version, self.models[version - 1], online=False)

    def predict(self, version: int, rows: pa.Table) -> list[float]:
        scored: list[float] = self.model(version).predictor.predict(rows).tolist()
        return scored


def make_live(store: ArtifactStore, *, sensitive: tuple[str, ...] = ()) -> Live:
    """Versions 1 and 2 score; 3 gives NaN; 4 is no model."""
    training_set = publish_training_set(store, table(150), task="binary", sensitive=list(sensitive))
    split = publish_split(store, training_set, train=range(100))
    models = [publish_model(store, training_set, split, steps=steps, seed=steps) for steps in (2, 3)]
    models.append(publish_model(store, training_set, split, steps=2, broken=True))
    models.append(str(store.publish("models", "delays", {"x": b"x"}, derived_from={"training_set": training_set})))
    records = [
        Record(
            kind="registered",
            version=number,
            verdict=Verdict(
                subject=VerdictSubject(model=model, training_set=training_set, split=split, policy="p" * 64),
                champion="",
                evaluation="e",
                verdict="pass",
            ),
        )
        for number, model in enumerate(models, start=1)
    ]
    Ledger(store, "delays").extend(lambda state: records[state.size] if state.size < len(records) else None)
    return Live(store, models)
