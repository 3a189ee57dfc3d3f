"""The page of a finished or running experiment."""
