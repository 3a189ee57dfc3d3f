"""Chooses the earlier feature tables that the tables of a snapshot are added to."""
