"""The component `fit_transformation`."""
