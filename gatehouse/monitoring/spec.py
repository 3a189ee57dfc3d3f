"""Settings of monitoring: the checks, the reference, the alarm limits, and what asks for a new model."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from gatehouse.store.identity import Spec, Unordered

Trigger = Literal["drift", "decay", "schedule", "volume"]
NumericMeasure = Literal["psi", "jensen_shannon", "kullback_leibler", "wasserstein", "kolmogorov_smirnov"]
CategoricalMeasure = Literal["psi", "jensen_shannon", "kullback_leibler", "l_infinity"]


class ReferenceSpec(Spec):
    """The rows that the newest rows are compared with."""

    window: Literal["training", "year_ago", "trailing"] = Field(
        "training",
        description="`training`: the rows that the champion was trained on; `year_ago`: the same period one "
        "year before; `trailing`: the days just before.",
    )
    days: int = Field(28, ge=1, le=3660, description="Length of the trailing window.")


class SignificanceSpec(Spec):
    """The test for chance: a column drifted only if a test rejects that both samples have the same distribution.

    Bins are compared by a chi-square test (Rao and Scott 1981). Rows of one day depend on each other, so the test
    counts only as many rows as the days are worth.
    """

    correction: Literal["holm", "benjamini_hochberg"] = Field(
        "holm",
        description="`holm` bounds the chance of any false alarm; `benjamini_hochberg` the share of false ones among "
        "all.",
    )
    level: float = Field(0.01, gt=0.0, lt=1.0, description="The bound of this chance or share.")
    unit: str = Field(
        "day",
        description="`day`, `week`, or a column whose equal values are one unit; empty for single rows. Units "
        "are treated as independent: use `week` if a day resembles the day before, as with weather.",
    )


class DataDriftSpec(Spec):
    """Drift of the features: how far each may move, and what share of the model's importance may drift.

    Weather and delays differ from month to month in every year, so each alarm is raised to the changes within the
    reference itself: it is cut into blocks as long as the newest rows, and a feature counts as drifted only if it moved
    `seasonal_margin` times further than the most unusual block.
    """

    numeric: NumericMeasure = Field("psi", description="The distance that judges numbers; the others are only shown.")
    categorical: CategoricalMeasure = Field(
        "psi", description="The distance that judges categories; the others are only shown."
    )
    bins: int = Field(10, ge=2, le=100, description="Quantile bins of the reference; zero and missing have their own.")
    categories: int = Field(100, ge=2, le=10_000, description="Most frequent values that have a bin of their own.")
    numeric_alarm: float = Field(0.25, gt=0.0, description="Distance above which a number counts as drifted.")
    categorical_alarm: float = Field(0.25, gt=0.0, description="Distance above which a category counts as drifted.")
    seasonal_margin: float = Field(
        1.25,
        ge=0.0,
        description="By how much the distance must exceed that of the most unusual block of the reference to "
        "count as drift; 0 to use the alarm values alone.",
    )
    significance: SignificanceSpec | None = Field(
        SignificanceSpec(), description="Significance test; null to judge by distance alone."
    )
    weights: Literal["importance", "equal"] = Field(
        "importance", description="Weight of a feature: the champion's permutation importance, or the same for all."
    )
    max_drifted: float = Field(
        0.2, ge=0.0, le=1.0, description="Share of the total weight that may drift without an alarm."
    )
    unless_holds: bool = Field(
        True, description="Whether drift only warns if the performance on known labels was checked and passed."
    )
    ignore: Unordered = Field((), description="Features that are shown, but do not count.")


class PredictionDriftSpec(Spec):
    """Drift of the model's predictions."""

    alarm: float = Field(
        0.25, gt=0.0, description="PSI of the scores, or of the predicted class, above which to alarm."
    )


class LabelDriftSpec(Spec):
    """Drift of the labels' level: their rate, their mean, or the share of the most frequent class."""

    alarm: float = Field(0.05, gt=0.0, le=1.0, description="Change of a rate or share above which to alarm.")
    mean_alarm: float = Field(
        0.25, gt=0.0, description="Change of a mean above which to alarm, in standard deviations of the train labels."
    )


class PerformanceSpec(Spec):
    """Performance on labels that have become known, compared with the champion's value at its gate."""

    metric: str = Field(
        "",
        description="A metric of the task, or one of your own, `package.module:name`; empty for "
        "the one that the gate compares models by.",
    )
    max_decay: float = Field(0.05, ge=0.0, description="How much worse it may be, as a share of the value at the gate.")
    samples: int = Field(200, ge=20, le=10_000, description="Resamples of the rows, for the interval.")
    resample_by: str = Field(
        "day", description="What the bootstrap draws as a whole: `day`, `week`, or a column; empty for single rows."
    )


class CalibrationSpec(Spec):
    """Calibration on labels that have become known, compared with the champion's error at its gate."""

    max_rise: float = Field(0.02, ge=0.0, description="By how much the calibration error may be larger.")


class QualitySpec(Spec):
    """Signs of a broken source; chance must not explain a breach, as `data_drift.significance` says."""

    max_missing_rise: float = Field(0.05, ge=0.0, le=1.0, description="By how much a share of missing values may grow.")
    max_new: float = Field(0.02, ge=0.0, le=1.0, description="Largest share of categories that training never saw.")
    max_outside: float = Field(0.02, ge=0.0, le=1.0, description="Largest share of numbers out of the range.")
    margin: float = Field(
        0.5,
        ge=0.0,
        description="By how much the range extends beyond that of training on each side, as a share of its width.",
    )


class FreshnessSpec(Spec):
    """Age of the feature views: their `ttl` against `features.freshness_against`."""


class RetrainSpec(Spec):
    """Reasons to train a new model, and how often one may be trained."""

    on: Annotated[tuple[Trigger, ...], AfterValidator(lambda triggers: tuple(sorted(set(triggers))))] = Field(
        ("decay", "drift"),
        description="`drift` of features, predictions or labels; `decay` of performance or calibration; "
        "`schedule`; `volume` of new rows. With an empty list only people decide.",
    )
    every_days: int = Field(30, ge=1, description="`schedule`: days since the champion was registered.")
    new_rows: int = Field(
        100_000, ge=1, description="`volume`: labelled rows since the last one that the champion was trained on."
    )
    cool_down_days: float = Field(
        7.0, ge=0.0, description="Days after a retraining order in which no other one is given."
    )
    budget: int = Field(4, ge=1, description="Largest number of orders in each period.")
    budget_days: int = Field(30, ge=1, description="Length of that period.")


class SubmissionSpec(Spec):
    """How a training is submitted to Kubeflow Pipelines, as the platform's profile says."""

    version: str = Field("", description="Name of the training pipeline's version; empty for the newest one.")
    experiment: str = Field("", description="KFP's experiment; empty for the project's name.")
    service_account: str = Field("", description="Service account of the pods; empty for KFP's own.")
    plugins_input: dict[str, Any] = Field({}, description="Input for KFP's plug-ins.")


CHECKS = ("data_drift", "prediction_drift", "label_drift", "performance", "calibration", "quality", "freshness")
"""The checks of a MonitoringSpec."""


class MonitoringSpec(Spec):
    """The checks of the newest rows. Each check has its own settings; `null` switches it off."""

    reference: ReferenceSpec = Field(ReferenceSpec(), description="What the newest rows are compared with.")
    min_rows: int = Field(1000, ge=1, description="With fewer rows nothing is judged; smaller blocks are not compared.")
    data_drift: DataDriftSpec | None = Field(DataDriftSpec(), description="Drift of the features.")
    prediction_drift: PredictionDriftSpec | None = Field(
        PredictionDriftSpec(), description="Drift of the model's predictions."
    )
    label_drift: LabelDriftSpec | None = Field(LabelDriftSpec(), description="Drift of the labels.")
    performance: PerformanceSpec | None = Field(PerformanceSpec(), description="Performance on known labels.")
    calibration: CalibrationSpec | None = Field(CalibrationSpec(), description="Calibration on known labels.")
    quality: QualitySpec | None = Field(QualitySpec(), description="Quality of the features.")
    freshness: FreshnessSpec | None = Field(FreshnessSpec(), description="Age of the feature views.")
    retrain: RetrainSpec = Field(RetrainSpec(), description="When a new model is ordered.")

    @model_validator(mode="after")
    def _decay_is_measured(self) -> "MonitoringSpec":
        if self.retrain.on == ("decay",) and not (self.performance or self.calibration):
            raise ValueError("retrain.on: expected the check performance or calibration for decay, found neither")
        return self
