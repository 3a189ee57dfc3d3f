"""The component `report_end`."""
