"""Where statistics are computed. It never changes what they are."""

from typing import Literal

from pydantic import Field

from gatehouse.store.identity import Spec, Unordered


class StatisticsSpec(Spec):
    """The machinery behind statistics: threads of one machine, or Apache Beam for what one machine does not hold."""

    engine: Literal["in_process", "beam"] = Field("in_process", description="`beam` needs gatehouse[beam].")
    threads: int = Field(
        0, ge=0, description="Threads, when the statistics are computed in this process; 0 for one per core, at most 8."
    )
    options: tuple[str, ...] = Field(
        (), description="Pipeline options of Beam, e.g. --runner=FlinkRunner; without any, Beam runs in the process."
    )


class SkewSpec(Spec):
    """What counts as skew between the features that a model was trained on and those that it was asked about."""

    psi: float | None = Field(0.2, gt=0, description="Greatest population stability index of a feature.")
    js: float | None = Field(0.1, gt=0, le=1, description="Greatest Jensen-Shannon divergence of a feature, in bits.")
    linf: float | None = Field(
        None, gt=0, le=1, description="Greatest difference of the share of any bin or value of a feature."
    )
    nulls: float = Field(0.05, ge=0, le=1, description="Largest increase of the share of nulls, NaN and infinities.")
    new_features: Literal["fail", "warn", "allow"] = Field(
        "warn", description="Severity for columns that are not in the training set."
    )
    ignore: Unordered = Field((), description="Columns that are not compared, e.g. request ids.")
    sensitive: Unordered = Field(
        (), description="Columns of which no value may be kept: only their types and nulls are compared."
    )
    min_rows: int = Field(1000, ge=1, description="With fewer logged rows nothing is judged.")
