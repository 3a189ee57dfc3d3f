"""The checks of monitoring: one file each, configured by its part of the MonitoringSpec."""
