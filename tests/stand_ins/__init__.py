"""Servers that tests start: protocol servers, and stand-ins that replay recorded answers."""
