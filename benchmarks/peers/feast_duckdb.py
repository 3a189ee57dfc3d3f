"""Retrieves historical features through a store of Feast's own; prints wall and CPU seconds and peak GB as JSON."""

import json
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Arguments: the store, and the folder that historical_features.py made."""
    warnings.simplefilter("ignore")
    store, folder = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from historical_features import measured

    print(json.dumps(measured(store, Path(folder))))


if __name__ == "__main__":
    main()
