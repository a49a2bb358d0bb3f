"""Turns what was read, decided and done into status, logs and metrics."""
