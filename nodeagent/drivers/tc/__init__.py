"""tc of the network namespace that the agent runs in: our ifb, its HTB, our filter on each uplink.

Reads by raw netlink, whole or not at all; writes by pyroute2, each read back. Touches nothing of others.
"""

from nodeagent.drivers.tc.events import TcEvents
from nodeagent.drivers.tc.matcher import Matcher
from nodeagent.drivers.tc.shaper import Shaper, as_held

__all__ = ["Matcher", "Shaper", "TcEvents", "as_held"]
