"""What counts as drift, and how much of it asks for a new model."""

from pydantic import Field

from gatehouse.components.artifacts.identity import Spec, Unordered


class MonitoringSpec(Spec):
    """Thresholds on the population stability index (PSI) by kind of feature, and on how much may exceed them.

    Weather and delays differ from month to month within any year, so a flat alarm rings every month. Each alarm is
    therefore raised to what the train rows did among themselves: they are cut into blocks as long as the current rows,
    and a feature counts as drifted only if it moved `seasonal_margin` times further than the most unusual block.
    """

    bins: int = Field(10, ge=2, le=100, description="Quantile bins of the train rows; zero and missing have their own.")
    categories: int = Field(100, ge=2, le=10_000, description="Most frequent values that have a bin of their own.")
    numeric_alarm: float = Field(0.25, gt=0.0, description="PSI above which a numeric feature counts as drifted.")
    categorical_alarm: float = Field(
        0.25, gt=0.0, description="PSI above which a categorical feature counts as drifted."
    )
    score_alarm: float = Field(0.25, gt=0.0, description="PSI of the model's scores above which to retrain.")
    label_alarm: float = Field(
        0.05,
        gt=0.0,
        le=1.0,
        description="Change of the label rate, or of the share of the most frequent class, above which to retrain.",
    )
    mean_label_alarm: float = Field(
        0.25,
        gt=0.0,
        description="Change of the mean label above which to retrain, in standard deviations of the train labels.",
    )
    seasonal_margin: float = Field(
        1.25, ge=0.0, description="How far beyond the most unusual block of the train rows is drift; 0 for flat alarms."
    )
    max_drifted: float = Field(0.2, ge=0.0, le=1.0, description="Share of drifted features above which to retrain.")
    min_rows: int = Field(1000, ge=1, description="Fewer current rows are not judged, nor are smaller blocks compared.")
    ignore: Unordered = Field((), description="Features that are shown and never counted.")
