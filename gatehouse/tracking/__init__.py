"""Run records: MLflow client, lineage, environment capture."""
