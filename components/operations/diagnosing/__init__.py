"""What a place must give to the pipelines, looked at from wherever this runs."""
