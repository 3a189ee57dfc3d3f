"""The integration suite of a candidate as the gate sees it: read off its artifact, and held against this evaluation."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.splitting.parts import Part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.gate import NOT_TRIED, Suite
from gatehouse.evaluation.integration.spec import FILE, GOLDEN, NOT_CHECKED, reasons_of
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor


def suite_of(store: ArtifactStore, reference: str, model: str, split: str, candidate: Predictor, part: Part) -> Suite:
    """What came of the suite, held against this evaluation; `not checked` where there is no reference.

    Args:
        store: Holds the suite.
        reference: Of the suite; empty for none.
        model: Reference of the candidate.
        split: Reference of the split.
        candidate: The candidate as the evaluation scores with it.
        part: The test rows that are judged on.

    Raises:
        ConfigurationError: if it tried another model, or on other rows.
    """
    if not reference:
        return NOT_TRIED
    manifest = store.manifest(reference)
    for role, wanted in (("model", model), ("split", split)):
        if (tried := manifest.derived_from.get(role)) != wanted:
            raise ConfigurationError(
                f"integration: expected the integration tests of the {role} {wanted}, found {reference}, which tested "
                f"{tried}. Give the integration tests of this candidate."
            )
    details = manifest.details
    found = Suite(details["verdict"], online=details.get("online", ""), **reasons_of(store.read_json(reference, FILE)))
    return _golden(store, reference, found, candidate, part)


def _golden(store: ArtifactStore, reference: str, suite: Suite, candidate: Predictor, part: Part) -> Suite:
    """The suite, failed where the candidate scores a row of its golden batch otherwise than this evaluation does.

    Rows that were taken out of the test part, as a model was fitted on them, are not compared.
    """
    golden = pq.read_table(store.path(reference, GOLDEN))
    known = dict(zip(golden["row"].to_pylist(), golden["prediction"].to_pylist(), strict=True))
    places = np.flatnonzero(np.isin(part.rows, list(known)))
    if not len(places):
        unchecked = f"golden batch: none of its rows is judged on ({NOT_CHECKED})"
        return replace(suite, warnings=(*suite.warnings, unchecked))
    found = candidate.predict(part.table.take(pa.array(places))).tolist()
    wrong = sum(known[row] != one for row, one in zip(part.rows[places].tolist(), found, strict=True))
    if not wrong:
        return suite
    why = f"golden batch: {wrong} of {len(places)} rows score otherwise in the evaluation"
    return replace(suite, verdict="fail", reasons=(*suite.reasons, why))
