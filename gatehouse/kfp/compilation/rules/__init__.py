"""The rules of the policy, one module per topic."""
