"""Reads one line of the kernel log and says which trouble of the node it reports, if any.

Only how a line begins counts, and only what the kernel itself wrote: names of processes further on are
their users' choice. It must never raise, whatever the bytes were.
"""

from __future__ import annotations

import re

from nodeagent.decide.xid_line import evidence
from nodeagent.model import NODE
from nodeagent.signals import KernelFault

PREFIXES = (
    "I/O error, dev ", "critical ", "device offline error, dev ", "protection error, dev ",
    "timeout error, dev ", "blk_update_request: ", "print_req_error: ", "XFS (", "INFO: task ",
    "Out of memory: Killed process ",
)
"""How every line begins that can report one; most lines are let go by this alone."""
_LIMIT_CHARACTERS = 200

# A reservation conflict ("critical nexus error") is another node's right, an unsupported command ("critical
# target error") a refusal, "critical space allocation error" a full thin volume: none is a failing disk.
_DISK = re.compile(
    r"(?:blk_update_request: |print_req_error: )?"
    r"(?:I/O error|critical medium error|device offline error|protection error|timeout error), "
    r"dev (?P<device>[A-Za-z0-9!_.-]{1,64})\b(?P<rest>.*)",
    re.DOTALL,
)
_XFS = re.compile(
    r"XFS \((?P<device>[A-Za-z0-9!_.-]{1,64})\): "
    r"(?:Metadata corruption|Corruption|metadata I/O error|Metadata CRC error|log I/O error"
    r"|Filesystem has been shut down|I/O Error Detected|Corruption of in-memory data)",
    re.IGNORECASE,
)
_HUNG = re.compile(r"INFO: task .{1,32}:\d{1,10} (?:<[^>]{0,64}> )?.{0,40}blocked for more than \d+ seconds")
_OOM = re.compile(r"Out of memory: Killed process \d")
_HARMLESS = re.compile(r"op 0x3:\(DISCARD\)|op 0x9:\(WRITE_ZEROES\)|op 0x5:\(SECURE_ERASE\)")
_REMOVABLE = re.compile(r"(?:sr|fd|nbd|rbd|zram|ram)\d")


def parse_fault(text: str, at_seconds: float) -> KernelFault | None:
    """The fault that a record of the kernel's own reports, or None. `at_seconds`: on CLOCK_MONOTONIC."""
    if not text.startswith(PREFIXES):
        return None
    found = _DISK.match(text)
    if found is not None:
        if _HARMLESS.search(found["rest"]) or _REMOVABLE.match(found["device"]):
            return None
        return _fault("disk", found["device"], text, at_seconds)
    found = _XFS.match(text)
    if found is not None:
        return _fault("disk", found["device"], text, at_seconds)
    if _HUNG.match(text):
        return _fault("hung", NODE, text, at_seconds)
    if _OOM.match(text):
        return _fault("oom", NODE, text, at_seconds)
    return None


def _fault(kind: str, target: str, text: str, at_seconds: float) -> KernelFault:
    line = evidence(text)[:_LIMIT_CHARACTERS]
    return KernelFault(kind=kind, target=target.replace("!", "/"), at_seconds=at_seconds, text=line)
