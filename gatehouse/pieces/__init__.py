"""Divides the work of a stage into pieces, and runs them on the processors of this machine or on a Ray cluster."""
