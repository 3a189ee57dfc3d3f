"""Notices to a webhook."""
