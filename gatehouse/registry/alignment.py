"""Whether past candidates that were better offline were better live too: rank correlation, on a page and as a rule."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gatehouse.errors import ErasedArtifactError, MissingArtifactError
from gatehouse.evaluation.gate import Rule
from gatehouse.evaluation.spec import NOT_CHECKED, GatePolicy
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array
from gatehouse.monitoring.live import FILE
from gatehouse.registry.ledger import State
from gatehouse.runtime.plural import counted
from gatehouse.store.store import ArtifactStore

RULE = "alignment"
_DRAWS, _FEWEST = 2000, 4


@dataclass(frozen=True)
class Candidate:
    """A version that was judged offline and live beside the same champion, and by how much it was worse in each.

    `offline` is in `metric`, `live` by the names of what was compared live; positive numbers are worse.
    """

    version: int
    metric: str
    offline: float
    live: dict[str, float]


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation over candidates with a 95 % interval; None where there are too few for one."""

    candidates: int
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})"
        value = "not known" if self.value is None else f"{self.value:.2f}"
        return f"{value}{interval}, of {counted(self.candidates, 'candidate')}"


def past_candidates(store: ArtifactStore, state: State) -> list[Candidate]:
    """The versions with a verdict of the gate and a live verdict beside the same champion, each with its last ones."""
    last = {live.canary: live for _, live in state.live}
    candidates = []
    for model, live in last.items():
        version = state.version_of(model)
        verdicts = [
            verdict
            for _, verdict in state.verdicts
            if (verdict.subject.model, verdict.champion) == (model, live.champion)
        ]
        if version is None or not verdicts:
            continue
        try:
            offline = store.read_json(verdicts[-1].evaluation, "verdict.json").get("comparison")
            differences = store.read_json(live.evaluation, FILE)["differences"]
        except (ErasedArtifactError, MissingArtifactError):
            continue
        measured = {item["name"]: float(item["worse_by"]) for item in differences if item["in_canary"]}
        if offline and measured:
            candidates.append(Candidate(version.version, offline["metric"], float(offline["worse_by"]), measured))
    return candidates


def correlation(candidates: list[Candidate], name: str) -> Correlation:
    """The correlation of the offline difference with the live one of a name; candidates without it do not count.

    Spearman's coefficient of average ranks (1904), with the percentile interval of 2,000 resamples of the candidates.
    """
    pairs = np.array([(item.offline, item.live[name]) for item in candidates if name in item.live]).reshape(-1, 2)
    value = _spearman(pairs) if len(pairs) >= _FEWEST else np.nan
    if np.isnan(value):
        return Correlation(len(pairs))
    draws = np.random.default_rng(7).integers(0, len(pairs), (_DRAWS, len(pairs)))
    low, high = np.nanpercentile([_spearman(pairs[rows]) for rows in draws], (2.5, 97.5))
    return Correlation(len(pairs), value, float(low), float(high))


def _spearman(pairs: Array) -> float:
    """Spearman's rank correlation of pairs, shape (pairs, 2); NaN if all values of a side are equal."""
    centred = [ranks - ranks.mean() for ranks in map(_ranks, pairs.T)]
    scale = np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum())
    return float((centred[0] * centred[1]).sum() / scale) if scale else float("nan")


def _ranks(values: Array) -> Array:
    """The rank of each value, equal values with the mean of theirs, shape (values,)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def alignment_rules(store: ArtifactStore, state: State, policy: GatePolicy) -> Iterator[Rule]:
    """The rule that offline and live differences of past candidates go together, with its terms.

    With too few candidates it is not checked, and holds.
    """
    if (asked := policy.alignment) is None:
        return
    measured = correlation(past_candidates(store, state), asked.live)
    expected = f"a rank correlation with {asked.live} on live outcomes of at least {asked.min_correlation:g}"
    rule = Rule(RULE, expected, str(measured), holds=True)
    if measured.low is None or measured.high is None or measured.candidates < asked.min_candidates:
        rule = replace(rule, observed=f"{NOT_CHECKED}: {measured}, of at least {asked.min_candidates}")
    elif measured.low < asked.min_correlation:
        rule = replace(rule, holds=False, inconclusive=measured.high >= asked.min_correlation)
    yield replace(rule, **dict(policy.terms_of(RULE)))
