"""NVIDIA GPUs that this process sees."""

import ctypes


def num_gpus() -> int:
    """By the driver, without PyTorch; 0 where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0
