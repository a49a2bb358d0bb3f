"""The Kubernetes API, as far as a node agent needs it: single objects, and watches of what is the node's own.

Nothing here lists, retries or sleeps: one call is one attempt with a deadline, and when to try again is
decided elsewhere. httpx is imported at the first request: a node without a cluster pays nothing for it.
"""

from nodeagent.drivers.kube.answers import ApiRefusal
from nodeagent.drivers.kube.budget import Budget
from nodeagent.drivers.kube.client import KubeClient
from nodeagent.drivers.kube.credentials import Credentials, find_credentials, in_pod
from nodeagent.drivers.kube.watch import WatchEnded, WatchEvent, watch

__all__ = [
    "ApiRefusal", "Budget", "Credentials", "KubeClient", "WatchEnded", "WatchEvent", "find_credentials",
    "in_pod", "watch",
]
