"""Executors: each carries out one plan, op by op, and reports outcomes."""
