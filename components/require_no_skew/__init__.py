"""The component `require_no_skew`."""
