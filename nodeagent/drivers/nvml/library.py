"""Calls into libnvidia-ml through pynvml, each marked first, each error translated.

It must never make a call again that the library does not have, and never let an NVML error out
untranslated. It keeps no handle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

from nodeagent.errors import DriverError, ErrorKind

FUNCTION_NOT_FOUND = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
RESET_REQUIRED = pynvml.NVML_ERROR_RESET_REQUIRED
UNINITIALIZED = pynvml.NVML_ERROR_UNINITIALIZED
LASTING = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)
"""Codes for a feature that this GPU and this library will not have later either."""

FieldId = int | tuple[int, int]
"""A field of the GPU, or of one of its NVLinks: id and link."""

_KINDS: dict[int, ErrorKind] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_NOT_FOUND: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_DEPRECATED: ErrorKind.ABSENT,
    pynvml.NVML_ERROR_NO_PERMISSION: ErrorKind.DENIED,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: ErrorKind.DENIED,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: ErrorKind.BUSY,
    pynvml.NVML_ERROR_RESET_REQUIRED: ErrorKind.BUSY,
    pynvml.NVML_ERROR_IN_USE: ErrorKind.BUSY,
    pynvml.NVML_ERROR_MEMORY: ErrorKind.BUSY,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: ErrorKind.BUSY,
    pynvml.NVML_ERROR_NOT_READY: ErrorKind.BUSY,
    pynvml.NVML_ERROR_GPU_IS_LOST: ErrorKind.LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: ErrorKind.LOST,
    pynvml.NVML_ERROR_TIMEOUT: ErrorKind.TIMEOUT,
}
"""Every other code is `invalid`: the answer tells nothing that could be acted on."""

_CAUSES: dict[int, str] = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "absent",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "absent",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "access_lost",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "access_lost",
    pynvml.NVML_ERROR_UNKNOWN: "access_lost",
    pynvml.NVML_ERROR_NOT_READY: "not_ready",
}
"""What it means when NVML as a whole answers with that code; else "other"."""


class NvmlFailure(DriverError):
    """A DriverError that still knows NVML's return code."""

    def __init__(self, code: int, target: str, op: str) -> None:
        self.code = code
        kind = _KINDS.get(code, ErrorKind.INVALID)
        super().__init__(kind, target, op, f"NVML returned {code}, {pynvml.NVMLError(code)}")

    @property
    def cause(self) -> str:
        """Named cause, should NVML as a whole answer so."""
        return _CAUSES.get(self.code, "other")

    @property
    def access_lost(self) -> bool:
        """True for the codes that a removed device permission produces."""
        return self.cause == "access_lost"


class Library:
    """The calls; `mark` is told name and target before each."""

    def __init__(self, mark: Callable[[str, str], None]) -> None:
        self._mark = mark
        self._missing: set[str] = set()

    def call(self, name: str, target: str, *arguments: Any) -> Any:
        """pynvml's `name`, marked. Raises NvmlFailure, or DriverError(invalid) for an undecodable answer."""
        if name not in self._missing:
            self._mark(name, target)
        return self._made(name, target, arguments)

    def call_each(self, target: str, calls: list[tuple[Any, ...]]) -> list[Any]:
        """Answers of several calls like (name, handle, link) on one target, under the mark of the first.

        Raises as `call` does.
        """
        for name, *_ in calls[:1]:
            self._mark(name, target)
        return [self._made(name, target, arguments) for name, *arguments in calls]

    def _made(self, name: str, target: str, arguments: Iterable[Any]) -> Any:
        if name in self._missing:
            raise NvmlFailure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, target, name)
        try:
            function = getattr(pynvml, name)
            return function(*arguments)
        except pynvml.NVMLError_FunctionNotFound as error:
            self._missing.add(name)
            raise NvmlFailure(error.value, target, name) from error
        except pynvml.NVMLError as error:
            raise NvmlFailure(error.value, target, name) from error
        except (AttributeError, pynvml.NVMLLibraryMismatchError) as error:
            self._missing.add(name)
            raise NvmlFailure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, target, name) from error
        except (ValueError, TypeError, ctypes.ArgumentError) as error:
            raise DriverError(ErrorKind.INVALID, target, name, str(error)) from error

    def field(self, target: str, handle: Any, field_id: int) -> int:
        """One whole-number field value, with its own return code. Raises NvmlFailure."""
        return self.fields(target, handle, (field_id,))(field_id)

    def fields(self, target: str, handle: Any, field_ids: tuple[FieldId, ...]) -> Callable[[FieldId], int]:
        """Several field values in one call: gives the value of an id, or raises that id's NvmlFailure.

        An id that this driver does not know yet answers "invalid argument": that is an absent feature.
        """
        answers = self.call("nvmlDeviceGetFieldValues", target, handle, list(field_ids))
        by_id = dict(zip(field_ids, answers, strict=True))
        return lambda field_id: _whole_number(target, field_id, by_id[field_id])


def _whole_number(target: str, field_id: FieldId, answer: Any) -> int:
    code = int(answer.nvmlReturn)
    if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        code = pynvml.NVML_ERROR_NOT_SUPPORTED
    if code != pynvml.NVML_SUCCESS:
        raise NvmlFailure(code, target, f"field {field_id}")
    member = _MEMBERS.get(int(answer.valueType))
    if member is None:
        detail = f"value type {answer.valueType} is no whole number"
        raise DriverError(ErrorKind.INVALID, target, f"field {field_id}", detail)
    return int(getattr(answer.value, member))


_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}
"""Value type of a field -> member of its union."""
