"""Readers of a GPU's NVLinks and of the fabric they lead to: each gives one noun or raises DriverError.

In MIG mode every link reads as down, so nothing is read then. Nothing is judged here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from nodeagent.drivers.nvml import asking
from nodeagent.drivers.nvml.asking import Asking
from nodeagent.drivers.nvml.library import FUNCTION_NOT_FOUND, LASTING, NvmlFailure
from nodeagent.gpu_signals import FabricState, NvLinkErrors, NvLinks

VERSION_MISMATCH = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
FABRIC_STRUCTURES = {
    "v3": (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlGpuFabricInfo_v3),
    "v2": (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlGpuFabricInfo_v2),
}
"""The newest first."""
_BYTE = 0xFF
"""NVML fills one byte of these members; the rest is padding."""


def nvlink(gpu: Asking) -> NvLinks:
    """State of each link: by fields where the GPU has them, else link by link. Raises DriverError."""
    _require_links(gpu)
    if not gpu.lacks(asking.LINK_STATE):
        try:
            return _links(gpu.link_fields(asking.LINK_STATE))
        except NvmlFailure as failure:
            if failure.code not in LASTING:
                raise
    calls = [("nvmlDeviceGetNvLinkState", gpu.handle, link) for link in range(gpu.links())]
    return _links(gpu.library.call_each(gpu.target, calls))


def nvlink_errors(gpu: Asking) -> NvLinkErrors:
    """Error counters over all links; those that the GPU has. Raises DriverError."""
    _require_links(gpu)
    crc = [_optional(gpu, field_id) for field_id in asking.LINK_CRC]
    recovery = [_optional(gpu, field_id) for field_id in (asking.LINK_REPLAY, asking.LINK_RECOVERY)]
    recovery.append(_failed_recoveries(gpu))
    found = [count for count in (*crc, *recovery) if count is not None]
    if not found:
        raise NvmlFailure(pynvml.NVML_ERROR_NOT_SUPPORTED, gpu.target, "NVLink error counters")
    return NvLinkErrors(
        crc_errors=sum(count or 0 for count in crc), recovery_errors=sum(count or 0 for count in recovery)
    )


def fabric(gpu: Asking) -> FabricState:
    """Registration with the fabric, by the newest structure that the driver knows. Raises DriverError."""
    for version in FABRIC_STRUCTURES:
        if gpu.lasting.get("fabric structure", version) != version:
            continue
        try:
            answer = _fabric_info(gpu, version)
        except NvmlFailure as failure:
            if failure.code not in (VERSION_MISMATCH, FUNCTION_NOT_FOUND):
                raise
            continue
        gpu.lasting["fabric structure"] = version
        summary = int(answer.healthSummary) if version == "v3" else None
        return FabricState(
            state=int(answer.state) & _BYTE, status=int(answer.status), health_mask=int(answer.healthMask),
            health_summary=summary,
        )
    oldest = pynvml.c_nvmlGpuFabricInfo_t()
    gpu.call("nvmlDeviceGetGpuFabricInfo", ctypes.byref(oldest))
    return FabricState(state=int(oldest.state) & _BYTE, status=int(oldest.status))


def _fabric_info(gpu: Asking, version: str) -> Any:
    structure, info_version = FABRIC_STRUCTURES[version]
    info = structure()
    info.version = info_version
    gpu.call("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info))
    return info


def _require_links(gpu: Asking) -> None:
    if gpu.mig_enabled or not gpu.links():
        raise NvmlFailure(pynvml.NVML_ERROR_NOT_SUPPORTED, gpu.target, "NVLink state")


def _links(states: list[int]) -> NvLinks:
    inactive = tuple(link for link, state in enumerate(states) if not state)
    return NvLinks(link_count=len(states), inactive=inactive)


def _optional(gpu: Asking, field_id: int) -> int | None:
    try:
        return gpu.field(field_id)
    except NvmlFailure as failure:
        if failure.code in LASTING:
            return None
        raise


def _failed_recoveries(gpu: Asking) -> int | None:
    if gpu.lacks(asking.LINK_RECOVERY_FAILED):
        return None
    try:
        return sum(gpu.link_fields(asking.LINK_RECOVERY_FAILED))
    except NvmlFailure as failure:
        if failure.code in LASTING:
            return None
        raise
