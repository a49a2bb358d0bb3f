"""Samplers and the board: what is outside becomes readings and events."""
