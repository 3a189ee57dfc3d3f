"""The component `roll_out`."""
