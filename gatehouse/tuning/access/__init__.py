"""Connects to the database that holds studies: directly, or through Optuna's proxy."""
