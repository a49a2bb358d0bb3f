"""How many NVLinks of a GPU should be up, by PCI device.

Product names mislead (GH200 contains H200), so only numbers are looked up. Where bridges are optional, or
boards of one device differ, several counts are right; a device that is not listed has no expectation.
"""

from __future__ import annotations

NVIDIA_VENDOR = 0x10DE

ALLOWED: dict[int, tuple[int, ...]] = {
    **dict.fromkeys((0x20B0, 0x20B2, 0x20B3), (8, 12)),  # A100 SXM4; some baseboards connect fewer
    **dict.fromkeys((0x20B5, 0x20F1), (0, 4, 8, 12)),  # A100 PCIe
    **dict.fromkeys((0x20BD, 0x20F3), (8,)),  # A800 SXM4
    **dict.fromkeys((0x20F5, 0x20F6), (0, 8)),  # A800 PCIe, A800 40GB Active
    0x20B7: (0, 4),  # A30
    0x2235: (0, 4),  # A40
    0x2330: (18,),  # H100 SXM5
    0x2339: (18,),  # H100, another board
    0x2324: (8,),  # H800 SXM5
    **dict.fromkeys((0x2329, 0x232C, 0x230E), (18,)),  # H20
    0x2331: (0, 12),  # H100 PCIe
    0x2321: (0, 12),  # H100 NVL
    **dict.fromkeys((0x2322, 0x233A), (0, 8)),  # H800 PCIe, H800 NVL
    0x2335: (18,),  # H200 SXM5
    0x233B: (0, 18),  # H200 NVL
    **dict.fromkeys((0x2342, 0x2348), (0, 18)),  # GH200; its link to the CPU is not counted
    0x2901: (18,),  # B200 SXM6
    0x3182: (18,),  # B300 SXM6
    0x2941: (18,),  # GB200
    0x31C2: (18,),  # GB300
}
"""PCI device id -> counts of active links that are right."""

OF_SYSTEM_MEMORY = frozenset({0x2342, 0x2348, 0x2941, 0x31C2, 0x2E12})
"""Devices whose memory the operating system may own as a NUMA node: GH200, GB200, GB300, GB10."""


def device_of(pci_id: int | None) -> int | None:
    """`0x2330` of NVML's `0x233010de`; None when it is not known or not NVIDIA's."""
    if pci_id is None or pci_id & 0xFFFF != NVIDIA_VENDOR:
        return None
    return pci_id >> 16


def allowed_links(pci_id: int | None, board_id: int | None, own: dict[str, int]) -> tuple[int, ...]:
    """Counts that are right for that GPU, () when nobody says.

    `own`: the operator's, by `2330` or by device and board, `2330:16c1`; the narrower one wins.
    """
    device = device_of(pci_id)
    if device is None:
        return ()
    board = "" if board_id is None else f"{device:04x}:{board_id >> 16:04x}"
    for name in (board, f"{device:04x}"):
        if name in own:
            return (own[name],)
    return ALLOWED.get(device, ())


def own_links(words: tuple[str, ...]) -> tuple[dict[str, int], str]:
    """The operator's counts from words like `2330=18`, and the first word that is none ("" = all are)."""
    found: dict[str, int] = {}
    for word in words:
        name, _, count = word.lower().removeprefix("0x").partition("=")
        device, _, board = name.partition(":")
        digits = [device, board] if ":" in name else [device]
        if not count.isdecimal() or not all(_is_hex(text) for text in digits):
            return found, word
        found[name] = int(count)
    return found, ""


def _is_hex(text: str) -> bool:
    return len(text) == 4 and all(character in "0123456789abcdef" for character in text)
