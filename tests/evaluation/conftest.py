"""A training set, its split, and a good and a bad model on it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gatehouse.evaluation.result import EvaluateResult
from gatehouse.evaluation.spec import ChampionRule, EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.metrics import performance
from gatehouse.store.store import ArtifactStore
from tests.evaluation.candidates import publish_model
from tests.training.synthetic import lay_out, publish_split, publish_training_set, table

LENIENT = GatePolicy(
    must_beat_baseline=(), leakage_alarm={}, champion=ChampionRule(tolerance=0.02), slices={"roc_auc": 0}
)
SPEC = EvaluationSpec(slices=("carrier",), min_slice_rows=20, bootstrap_samples=100)


@dataclass
class Bench:
    """Evaluates models on one training set."""

    store: ArtifactStore
    training_set: str
    split: str
    models: dict[str, str] = field(default_factory=dict)

    def evaluate(
        self, model: str, champion: str = "", policy: GatePolicy = LENIENT, spec: EvaluationSpec = SPEC, **other: str
    ) -> EvaluateResult:
        """Evaluate a model against another."""
        return evaluate(self.request(model, champion, policy, spec), self.store, **other)

    def request(
        self, model: str, champion: str = "", policy: GatePolicy = LENIENT, spec: EvaluationSpec = SPEC
    ) -> EvaluateRequest:
        """The request of that evaluation."""
        return EvaluateRequest(model=model, champion=champion, split=self.split, spec=spec, policy=policy)

    def model(self, **how: object) -> str:
        """Publish a model."""
        return publish_model(self.store, self.training_set, self.split, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def few_calls() -> Iterator[None]:
    """Latency is measured over a few calls: a third of the time of an evaluation of so few rows went into it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(performance, "_SINGLE", 10)
        patch.setattr(performance, "_BATCHES", 2)
        yield


@pytest.fixture
def bench(store: ArtifactStore) -> Bench:
    """An empty bench."""
    return Bench(store, *lay_out(store))


@pytest.fixture(scope="session")
def judged_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench that its tests only read, with the models `good`, `other` (as good) and `bad`; 1,500 test rows."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("bench"))
    training_set = publish_training_set(store, table(3000))
    parts = {"train": range(1000), "validation": range(1000, 1500), "test": range(1500, 3000)}
    made = Bench(store, training_set, publish_split(store, training_set, **parts))
    made.models = {
        "good": made.model(),
        "other": made.model(seed=1),
        "bad": made.model(steps=3),
    }
    return made
