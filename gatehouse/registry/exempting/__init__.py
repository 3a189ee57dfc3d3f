"""Exemptions: a person allows one candidate to break one rule of the gate for some days."""
