"""Xid events from NVML: one thread and one event set for each GPU.

Waiting must go on while every other NVML call hangs, so nothing is shared with the reading thread
but the library itself. A set of one GPU only: a lost GPU answers its Wait at once, for ever, and must
neither spin nor silence the others.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pynvml

from nodeagent.signals import XidEvent

WAIT_MILLISECONDS = 1000
REBUILD_FIRST_SECONDS = 1.0
REBUILD_LIMIT_SECONDS = 60.0
LINE_GAP_SECONDS = 0.05
"""Between two lines of one GPU, so that a storm arrives as counts."""

_DRAIN_LIMIT = 1000
_STACK_BYTES = 1 << 20
_NO_INSTANCE = 0xFFFFFFFF
_HOPELESS = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class EventThreads:
    """Threads by PCI address; each lives as long as the process."""

    def __init__(self, send: Callable[[XidEvent], None]) -> None:
        self._send = send
        self._handles: dict[str, Any] = {}
        self._changing_set = threading.Lock()

    def watch(self, pci_address: str, handle: Any) -> None:
        """Have this GPU's events sent from now on; a newer handle serves the next rebuilt set."""
        known = pci_address in self._handles
        self._handles[pci_address] = handle
        if not known:
            threading.stack_size(_STACK_BYTES)
            threading.Thread(target=self._run, args=(pci_address,), daemon=True).start()

    def settle(self) -> None:
        """Let a set that is just being made or freed be finished, then hold all others back."""
        self._changing_set.acquire(timeout=2.0)

    def _run(self, pci_address: str) -> None:
        pause_seconds = REBUILD_FIRST_SECONDS
        while True:
            try:
                event_set = self._registered_set(pci_address)
                if event_set is None:
                    return
                try:
                    while True:
                        waited = self._wait(pci_address, event_set)
                        pause_seconds = REBUILD_FIRST_SECONDS if waited else pause_seconds
                finally:
                    with self._changing_set:
                        pynvml.nvmlEventSetFree(event_set)
            except pynvml.NVMLError as error:
                if error.value in _HOPELESS:
                    return
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, REBUILD_LIMIT_SECONDS)

    def _registered_set(self, pci_address: str) -> Any | None:
        """A new set with this GPU's Xid events, None when the GPU has none. Raises NVMLError."""
        with self._changing_set:
            handle = self._handles[pci_address]
            wanted = pynvml.nvmlEventTypeXidCriticalError
            if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
                return None
            event_set = pynvml.nvmlEventSetCreate()
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, wanted, event_set)
            except pynvml.NVMLError:
                pynvml.nvmlEventSetFree(event_set)
                raise
            return event_set

    def _wait(self, pci_address: str, event_set: Any) -> bool:
        """Wait once and send what came, equal events as one. True when NVML was well. Raises NVMLError."""
        seen: Counter[tuple[int, int, int]] = Counter()
        failure: pynvml.NVMLError | None = None
        timeout_milliseconds = WAIT_MILLISECONDS
        try:
            for _ in range(_DRAIN_LIMIT):
                data = pynvml.nvmlEventSetWait_v2(event_set, timeout_milliseconds)
                timeout_milliseconds = 0
                if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
                    seen[data.eventData, data.gpuInstanceId, data.computeInstanceId] += 1
        except pynvml.NVMLError_Timeout:
            pass
        except pynvml.NVMLError as error:
            failure = error
        at_seconds = time.monotonic()
        for (number, gpu_instance, compute_instance), count in seen.items():
            instances = (gpu_instance, compute_instance)
            self._send(_event(pci_address, number, count, instances, at_seconds))
        if failure is not None:
            raise failure
        if seen:
            time.sleep(LINE_GAP_SECONDS)
        return True


def _event(
    pci_address: str, number: int, count: int, instances: tuple[int, int], at_seconds: float
) -> XidEvent:
    mig = "" if _NO_INSTANCE in instances else " GI {} CI {}".format(*instances)
    return XidEvent(
        source="nvml", pci_address=pci_address, number=number, at_seconds=at_seconds, count=count,
        text=f"NVML event: Xid {number} on GPU {pci_address}{mig}",
    )
