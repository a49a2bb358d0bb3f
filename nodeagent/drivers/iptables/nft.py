"""The writer for hosts whose iptables is backed by nftables: one iptables-nft-restore per change.

It is one transaction that does not wait for any lock; rules of others are not part of it.
"""

from __future__ import annotations

from nodeagent.drivers.iptables.difference import Change
from nodeagent.drivers.iptables.programs import LOCK_WAIT_SECONDS, run
from nodeagent.drivers.iptables.reading import TABLE
from nodeagent.drivers.iptables.writer import Rules


class NftRules(Rules):
    """See RuleWriter."""

    backend = "nft"

    async def _write(self, family: int, change: Change) -> None:
        await self._restore(family, change.lines)

    async def _write_line(self, family: int, chain: str, arguments: str, *, delete: bool) -> None:
        await self._restore(family, (f"{'-D' if delete else '-A'} {chain} {arguments}",))

    async def _restore(self, family: int, lines: tuple[str, ...]) -> None:
        text = "\n".join((f"*{TABLE}", *lines, "COMMIT", ""))
        argv = [f"{self._backend.prefix[family]}-restore", "--noflush", "-w", str(LOCK_WAIT_SECONDS)]
        await run(argv, "write rules", text)
