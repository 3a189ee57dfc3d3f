"""The pipelines, the example project and the compiled specs."""
