"""Finds the champion that a candidate must be compared with."""
