"""Checks whether a platform has what a project's pipelines need, with advice for each problem."""
