"""Records and shows what happened: metrics, runs and experiments in MLflow, provenance, and measurements."""
