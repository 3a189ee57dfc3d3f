"""The file of a model's artifact that holds its weights; of a format that holds data and no code."""

_OF_TREES, _OF_NETWORKS = "weights.ubj", "weights.safetensors"


def weights_file(architecture: str) -> str:
    """Its name, by the name of the architecture; networks of one's own have the format of all networks."""
    return _OF_TREES if architecture == "xgboost" else _OF_NETWORKS
