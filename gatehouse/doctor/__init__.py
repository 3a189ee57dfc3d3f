"""Whether a platform gives what the pipelines of a project need: looked at, each with what to do about it."""
