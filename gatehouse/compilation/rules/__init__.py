"""The rules of the policy, by what they are about."""
