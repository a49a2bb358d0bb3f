"""Our ipsets by netlink."""

from nodeagent.drivers.ipset.nouns import SetEntry, SetReading, SetSpec
from nodeagent.drivers.ipset.sets import IpSets

__all__ = ["IpSets", "SetEntry", "SetReading", "SetSpec"]
