"""The error of a model that cannot be calibrated on these rows."""

from gatehouse.errors import GatehouseError


class CalibrationError(GatehouseError):
    """The validation rows cannot tell how a model is to be calibrated, or which threshold to take."""

    permanent = True
