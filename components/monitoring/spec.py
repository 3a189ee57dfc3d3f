"""What counts as drift, and how much of it asks for a new model."""

from pydantic import BaseModel, ConfigDict, Field


class MonitoringSpec(BaseModel):
    """Thresholds on the population stability index (PSI) of each feature, and on how many features may exceed it.

    Seasonal features drift every month: list them in `ignore`, or a flat alarm rings for ever.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bins: int = Field(10, ge=2, le=100, description="Quantile bins of the reference; zero and missing have their own.")
    psi_alarm: float = Field(0.25, gt=0.0, description="PSI above which a feature counts as drifted.")
    max_drifted: float = Field(0.2, ge=0.0, le=1.0, description="Share of drifted features above which to retrain.")
    label_alarm: float = Field(0.05, gt=0.0, le=1.0, description="Change of the label rate above which to retrain.")
    min_rows: int = Field(1000, ge=1, description="Fewer current rows are not judged.")
    ignore: tuple[str, ...] = ()
