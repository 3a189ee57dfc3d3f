"""How a person lets one candidate break one rule of the gate for some days."""
