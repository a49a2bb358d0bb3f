"""nodeagent: the per-node health, traffic and taint daemon for GPU Kubernetes clusters."""

__version__ = "0.1.0"
