"""Settings of the algorithms that suggest configurations, and of the rules that stop trials early."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gatehouse.store.identity import Spec


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class RandomAlgorithm(Spec):
    """Every configuration is drawn independently."""

    name: Literal["random"] = "random"


class GridAlgorithm(Spec):
    """All combinations of the values, in a random order; the experiment ends when all are tried."""

    name: Literal["grid"] = "grid"


class SobolAlgorithm(Spec):
    """Points of a Sobol sequence, which fill the space more evenly than random ones."""

    name: Literal["sobol"] = "sobol"
    scramble: bool = Field(True, description="Shift the points by the seed, so that another seed tries other points.")


class TpeAlgorithm(Spec):
    """Tree-structured Parzen estimator: values that are frequent among good trials and rare among others."""

    name: Literal["tpe"] = "tpe"
    startup_trials: int = Field(10, ge=1, description="Trials that are drawn at random at the start.")
    candidates: int = Field(24, ge=1, le=10_000, description="Candidate values that are drawn for each suggestion.")
    multivariate: bool | None = Field(
        None,
        description="Whether parameters are modelled together (conditional ones by group); null for together "
        "if there is one objective.",
    )


class GpAlgorithm(Spec):
    """A Gaussian process, and the configuration with the best expected improvement."""

    name: Literal["gp"] = "gp"
    startup_trials: int = Field(10, ge=1, description="Trials that are drawn at random at the start.")


class CmaesAlgorithm(Spec):
    """CMA-ES: a normal distribution that moves to where trials are good. For numbers without conditions."""

    name: Literal["cmaes"] = "cmaes"
    startup_trials: int = Field(1, ge=1, description="Trials that are drawn at random at the start.")
    sigma: float | None = Field(
        None, gt=0, lt=1, description="First standard deviation as a share of each range; null for a sixth."
    )
    population_size: int | None = Field(
        None, ge=3, le=10_000, description="Trials of a generation; null to choose by the number of dimensions."
    )


class Nsga2Algorithm(Spec):
    """NSGA-II: generations of configurations, bred from the best of those before."""

    name: Literal["nsga2"] = "nsga2"
    population_size: int = Field(50, ge=2, le=10_000, description="Trials of a generation.")
    mutation: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Probability that a parameter mutates; null for one parameter per configuration on average.",
    )
    crossover: float = Field(0.9, ge=0, le=1, description="Probability that a configuration has two parents.")


class PopulationAlgorithm(Spec):
    """Population-based training: members train in parallel, and the worst continue with the weights of the best."""

    name: Literal["population"] = "population"
    population_size: int = Field(8, ge=2, le=10_000, description="Size of the population: trials of each generation.")
    interval: int = Field(1, ge=1, le=10_000, description="Epochs of a generation.")
    quantile: float = Field(
        0.25,
        gt=0,
        le=0.5,
        description="Share of the population that is the worst, and also that is the best: the worst members copy "
        "the best.",
    )
    perturb: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.8, 1.25), min_length=1, description="Factors: each setting of a copied member is multiplied by one of them."
    )
    resample: float = Field(0.25, ge=0, le=1, description="Probability that such a setting is drawn at random instead.")


Algorithm = Annotated[
    Annotated[
        RandomAlgorithm
        | GridAlgorithm
        | SobolAlgorithm
        | TpeAlgorithm
        | GpAlgorithm
        | CmaesAlgorithm
        | Nsga2Algorithm
        | PopulationAlgorithm,
        Field(discriminator="name"),
    ],
    BeforeValidator(_named, json_schema_input_type=Any),
]
"""How configurations are suggested; a name alone stands for the algorithm with its defaults."""

SEVERAL_OBJECTIVES = ("random", "grid", "sobol", "tpe", "nsga2")
"""Algorithms that support several objectives."""

UNCONDITIONAL = ("grid", "sobol", "cmaes", "population")
"""Algorithms that support no conditional parameters."""


class HyperbandStopping(Spec):
    """Rungs of geometrically growing length, in several brackets that start at different rungs."""

    name: Literal["hyperband"] = "hyperband"
    min_resource: int = Field(1, ge=1, description="Steps up to the first rung.")
    reduction_factor: int = Field(3, ge=2, description="One of this many trials continues to the next rung.")


class SuccessiveHalvingStopping(Spec):
    """Rungs of geometrically growing length."""

    name: Literal["successive_halving"] = "successive_halving"
    min_resource: int = Field(1, ge=1, description="Steps up to the first rung.")
    reduction_factor: int = Field(4, ge=2, description="One of this many trials continues to the next rung.")


class MedianStopping(Spec):
    """Stops a trial whose best value so far is worse than the median of the others at the same step."""

    name: Literal["median"] = "median"
    startup_trials: int = Field(5, ge=0, description="Trials that run to their end before any is stopped.")
    warmup_steps: int = Field(0, ge=0, description="First steps of a trial, in which it is not stopped.")


class PercentileStopping(Spec):
    """Continues a trial while its best value so far is in this best share of the others at the same step."""

    name: Literal["percentile"] = "percentile"
    percentile: float = Field(25.0, ge=0, le=100, description="Percentage of trials that continue.")
    startup_trials: int = Field(5, ge=0, description="Trials that run to their end before any is stopped.")
    warmup_steps: int = Field(0, ge=0, description="First steps of a trial, in which it is not stopped.")


class PatienceStopping(Spec):
    """Stops a trial whose last steps are all worse than its earlier best, independent of other trials."""

    name: Literal["patience"] = "patience"
    patience: int = Field(3, ge=1, description="How many steps in a row may be worse; one more stops the trial.")
    tolerance: float = Field(0.0, ge=0, description="A trial continues if it became worse by at most this much.")


EarlyStopping = Annotated[
    Annotated[
        HyperbandStopping | SuccessiveHalvingStopping | MedianStopping | PercentileStopping | PatienceStopping,
        Field(discriminator="name"),
    ],
    BeforeValidator(_named, json_schema_input_type=Any),
]
"""When a trial is stopped early; a name alone stands for the rule with its defaults."""
