"""The process and its machine: limits, images, redaction of secrets."""
