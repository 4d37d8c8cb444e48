"""One GPU through NVIDIA's management library: its device nodes, and how much of its memory is used by anybody.

It opens no CUDA context. GPUs are named by UUID, since an index means different things to different libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from grader.sandbox.levels import CannotStart

THROTTLES = {  # what slows a GPU down, by the library's bits
    "power": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    "temperature": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "hardware": pynvml.nvmlClocksThrottleReasonHwSlowdown | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}
# By compute capability, of one multiprocessor: operations a clock on dense half types, and lanes ("CUDA cores"). From
# NVIDIA's white papers on the A100 and the H100.
RATES = {(8, 0): (2048, 64), (9, 0): (4096, 128)}
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


class GpuUnknown(CannotStart):
    """The library is missing, or does not know this GPU or what was asked of it."""


@dataclass(frozen=True)
class GpuState:
    """How a GPU works at this moment."""

    sm_mhz: int
    power_w: float
    temperature_c: int
    throttles: tuple[str, ...]  # "power", "temperature", "hardware"


class ManagedGpu:
    """A GPU as the library sees it. Everything here raises `GpuUnknown`."""

    def __init__(self, uuid: str) -> None:
        self._ask(pynvml.nvmlInit)  # counted by the library: once for each is fine
        self._handle = self._ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)

    def nodes(self) -> list[str]:
        """The device nodes that CUDA needs for this GPU, and no other GPU's."""
        return [*SHARED_NODES, f"/dev/nvidia{self._ask(pynvml.nvmlDeviceGetMinorNumber, self._handle)}"]

    def used_bytes(self) -> int:
        """Memory in use by all processes, and by the driver."""
        return int(self._ask(pynvml.nvmlDeviceGetMemoryInfo, self._handle).used)

    def processes(self) -> int:
        """How many processes compute on it."""
        return len(self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses, self._handle))

    def bandwidth(self) -> float:
        """Bytes a second that its memory can move at most, at two transfers a clock."""
        clock = self._ask(pynvml.nvmlDeviceGetMaxClockInfo, self._handle, pynvml.NVML_CLOCK_MEM)
        width = self._ask(pynvml.nvmlDeviceGetMemoryBusWidth, self._handle)
        return float(2 * clock * 1e6 * width / 8)

    def half_rate(self) -> float | None:
        """Operations a second of its tensor cores on half types at most; None where nobody has told."""
        capability = tuple(self._ask(pynvml.nvmlDeviceGetCudaComputeCapability, self._handle))
        if capability not in RATES:
            return None
        operations, lanes = RATES[capability]
        clock = self._ask(pynvml.nvmlDeviceGetMaxClockInfo, self._handle, pynvml.NVML_CLOCK_SM)
        multiprocessors = self._ask(pynvml.nvmlDeviceGetNumGpuCores, self._handle) / lanes
        return float(operations * multiprocessors * clock * 1e6)

    def state(self) -> GpuState:
        """Its clock, power and temperature, and what slows it down."""
        reasons = int(self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self._handle))
        return GpuState(
            sm_mhz=int(self._ask(pynvml.nvmlDeviceGetClockInfo, self._handle, pynvml.NVML_CLOCK_SM)),
            power_w=self._ask(pynvml.nvmlDeviceGetPowerUsage, self._handle) / 1000,
            temperature_c=int(self._ask(pynvml.nvmlDeviceGetTemperature, self._handle, pynvml.NVML_TEMPERATURE_GPU)),
            throttles=tuple(name for name, bits in THROTTLES.items() if reasons & bits),
        )

    @staticmethod
    def _ask(function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise GpuUnknown(f"NVIDIA's management library: {error}") from None
