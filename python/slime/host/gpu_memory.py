"""Memory of a GPU that the program shares with this process, as a torch tensor of bytes.

The pages come as a file descriptor (beside a frame, as memory of the host does) and are mapped through the NVIDIA
driver's library; nothing is copied, and no other library is needed. The pages are held from here as long as a tensor
over them lives, whatever the program does with its own mapping.
"""

import ctypes

__all__ = ["open_memory"]

_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_AND_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_NO_SIZE, _NO_NUMBER = ctypes.c_size_t(0), ctypes.c_ulonglong(0)


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("kind", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


def _call(name, *arguments):
    driver = ctypes.CDLL("libcuda.so.1")
    status = getattr(driver, name)(*arguments)
    if status != 0:
        raise OSError(f"{name}: CUDA driver error {status}")


class _Mapped:
    """Addresses with the program's pages behind them, until nobody looks at them any more."""

    def __init__(self, descriptor, num_bytes, device):
        self._size = ctypes.c_size_t(num_bytes)
        handle, address = ctypes.c_ulonglong(), ctypes.c_ulonglong()
        _call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), _DESCRIPTOR)
        try:
            _call("cuMemAddressReserve", ctypes.byref(address), self._size, _NO_SIZE, _NO_NUMBER, _NO_NUMBER)
            _call("cuMemMap", address, self._size, _NO_SIZE, handle, _NO_NUMBER)
        finally:
            _call("cuMemRelease", handle)  # the mapping keeps the pages
        self._address = address
        access = _Access(_DEVICE, device, _READ_AND_WRITE)
        _call("cuMemSetAccess", address, self._size, ctypes.byref(access), ctypes.c_size_t(1))  # one of them
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address.value, False),
            "version": 2,
        }

    def __del__(self):
        address = getattr(self, "_address", None)
        if address is None:
            return
        import torch

        torch.cuda.synchronize()  # a kernel may still use the pages
        _call("cuMemUnmap", address, self._size)
        _call("cuMemAddressFree", address, self._size)


def open_memory(descriptor, num_bytes, device):
    """uint8 [num_bytes] on the GPU `device`. The descriptor may be closed afterwards."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            f"tensors of this run are on a GPU, and torch {torch.__version__} of this interpreter finds none; name an "
            "interpreter whose torch has CUDA: --plugin-python"
        )
    torch.cuda.set_device(device)
    torch.cuda.init()
    return torch.as_tensor(_Mapped(descriptor, num_bytes, device), device=f"cuda:{device}")
