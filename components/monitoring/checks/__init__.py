"""What monitoring looks at: one check, one file, each switched and set by its part of the MonitoringSpec."""
