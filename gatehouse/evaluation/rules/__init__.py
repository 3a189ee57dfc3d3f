"""The rules of the gate: one family, one file of its name, with its piece of the policy."""
