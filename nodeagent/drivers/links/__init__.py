"""Devices, addresses and routes of the network namespace that the agent runs in, by rtnetlink.

Reads only. A dump that the kernel calls interrupted is read again, never used: half a list of devices
would look like devices that are gone.
"""

from nodeagent.drivers.links.events import LinkEvents
from nodeagent.drivers.links.read import LinkReader

__all__ = ["LinkEvents", "LinkReader"]
