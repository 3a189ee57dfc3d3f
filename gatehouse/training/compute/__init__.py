"""The arithmetic of a process: precision, device, determinism."""
