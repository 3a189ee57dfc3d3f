"""The component `require_contract`."""
