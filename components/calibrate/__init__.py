"""The component `calibrate`."""
