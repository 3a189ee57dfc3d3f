"""The probe stage: what matters is seen to matter, what cannot be scored is said, and the same again is the same."""

import pyarrow as pa
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.evaluation.probing.probes import Feature, probes_of
from gatehouse.evaluation.probing.spec import ProbeSpec
from gatehouse.evaluation.probing.stage import ProbeRequest, ProbeResult, probe
from gatehouse.metrics.classification import log_loss
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor
from tests.evaluation.candidates import publish_model
from tests.evaluation.conftest import Bench
from tests.training.synthetic import lay_out


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A model on the small training set, whose label hangs on the distance most."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("bench"))
    training_set, split = lay_out(store)
    return Bench(store, training_set, split, {"good": publish_model(store, training_set, split)})


def probed(bench: Bench, **spec: int) -> ProbeResult:
    """Probe the model of the bench."""
    data = {"training_set": bench.training_set, "split": bench.split}
    return probe(ProbeRequest(model=bench.models["good"], **data, spec=ProbeSpec(**spec)), bench.store)


def test_what_the_label_hangs_on_matters_most(bench: Bench) -> None:
    result = probed(bench)
    actual = bench.store.read_json(result.robustness, "robustness.json")
    features = {value["name"]: value for value in actual["features"]}
    assert set(features) == {"distance", "wind", "delay_rate", "carrier", "origin"}
    assert actual["features"][0]["name"] == "distance" and result.summary.startswith("distance matters most")
    by_mean = [value["importance"]["mean"] for value in actual["features"]]
    assert by_mean == sorted(by_mean, reverse=True) and by_mean[0] > 0.05 > by_mean[-1]
    assert all(value["importance"]["spread"] > 0 for value in features.values())
    assert features["distance"]["changes"].keys() == {"missing", "below the range", "above the range"}
    assert features["carrier"]["changes"].keys() == {"missing", "unknown category"}
    part = read_part(bench.store, bench.training_set, bench.split, "test", BINARY)
    predictor = Predictor.load(bench.store, bench.models["good"])
    gone = part.table.set_column(part.table.column_names.index("distance"), "distance", pa.nulls(200, pa.float64()))
    plain, without = (log_loss(part.labels, predictor.predict(value)) for value in (part.table, gone))
    assert actual["value"] == pytest.approx(plain)
    assert features["distance"]["changes"]["missing"]["worse_by"] == pytest.approx(without - plain, abs=1e-8)


def test_a_value_out_of_range_lies_beyond_it_and_an_unknown_category_is_none_of_them() -> None:
    rows = pa.table(
        {
            "n": pa.array([1, 5, None], pa.int16()),
            "text": pa.array(["a", "b", None]).dictionary_encode(),
            "id": pa.array([1, 2, 2]),
            "yes": [True, False, None],
        }
    )
    changed = dict(probes_of(Feature("n", "numeric", 1.0, 5.0), rows))
    assert {name: table["n"].to_pylist()[0] for name, table in changed.items()} == {
        "missing": None,
        "below the range": -3.0,
        "above the range": 9.0,
    }
    for name in ("text", "id"):
        unknown = dict(probes_of(Feature(name, "categorical"), rows))["unknown category"]
        assert not set(unknown[name].to_pylist()) & set(rows[name].to_pylist())
    assert [name for name, _ in probes_of(Feature("yes", "categorical"), rows)] == ["missing"]
    assert [name for name, _ in probes_of(Feature("n", "numeric"), rows)] == ["missing"]
