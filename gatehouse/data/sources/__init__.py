"""Where raw tables come from, one file for each kind of source."""
