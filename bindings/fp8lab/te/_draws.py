# SPDX-License-Identifier: Apache-2.0
"""The CUDA generator's numbers: what ``rand``, ``randn``, ``uniform_`` and ``normal_`` draw on the device.

Its state is a seed and an offset, as in PyTorch. How far a draw moves the offset on follows
``calc_execution_policy`` of ATen/native/cuda/DistributionTemplates.h (PyTorch 2.13).
"""

from __future__ import annotations

import functools
import os
import struct
import warnings
from typing import Any

import fp8lab
from fp8lab.te.devices import Device

__all__ = [
    "CudaGenerator",
    "cuda_generator",
    "draw_normal",
    "draw_uniform",
    "warn_of_cpu_draw",
    "warn_of_cpu_factor",
    "warn_of_cpu_time",
]

_BLOCK = 256  # threads of a block
_AT_ONCE = 4  # numbers of one call of curand, for float32 and smaller types
_STATE = struct.Struct("<QQ")


class CudaGenerator:
    """A generator of the emulated device; ``cuda_generator()`` makes one that PyTorch's functions take."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._seed = 67280421310721  # PyTorch's default_rng_seed_val
        self._offset = 0

    @property
    def device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> CudaGenerator:
        self._seed, self._offset = int(seed) % 2**64, 0
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 11)
        return self._seed

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        if offset % 4:
            raise RuntimeError(f"offset must be a multiple of 4, not {offset}")
        self._offset = int(offset)

    def get_state(self) -> Any:
        import torch

        return torch.frombuffer(bytearray(_STATE.pack(self._seed, self._offset)), dtype=torch.uint8)

    def set_state(self, state: Any) -> CudaGenerator:
        if isinstance(state, CudaGenerator):
            self._seed, self._offset = state._seed, state._offset
            return self
        words = bytes(state.detach().reshape(-1).tolist())
        if len(words) not in (8, _STATE.size):
            raise RuntimeError(f"the state of a CUDA generator has 16 bytes, not {len(words)}")
        self._seed, self._offset = _STATE.unpack(words.ljust(_STATE.size, b"\0"))
        return self

    graphsafe_set_state = set_state

    def graphsafe_get_state(self) -> CudaGenerator:
        return self

    def clone_state(self) -> CudaGenerator:
        return cuda_generator(self._device).set_state(self)

    def take(self, numbers: int) -> tuple[int, int]:
        """Seed and offset for kernels whose threads take so many numbers each; the offset moves on."""
        before = self._offset
        self._offset += -(-numbers // 4) * 4
        return self._seed, before

    def options(self, size: int) -> dict[str, Any]:
        """The arguments of ``fp8lab.torch_cuda_uniform`` for a draw of that size; the offset moves on."""
        blocks_per_sm = self._device.threads_per_sm // _BLOCK
        blocks = min(self._device.sms * blocks_per_sm, -(-size // _BLOCK))
        rounds = (size - 1) // (_BLOCK * blocks * _AT_ONCE) + 1
        seed, offset = self.take(rounds * _AT_ONCE)
        return {"seed": seed, "offset": offset, "sms": self._device.sms, "blocks_per_sm": blocks_per_sm}


def cuda_generator(device: Device) -> CudaGenerator:
    """A generator of a device that is a ``torch.Generator``, too.

    Draws that have not the GPU's numbers take the latter's, which has the same seed.
    """
    made: CudaGenerator = _kind()(device)
    return made


@functools.cache
def _kind() -> Any:
    from torch._C import Generator as Own  # whatever torch.Generator is meanwhile

    class Generator(CudaGenerator, Own):  # type: ignore[misc]
        def __new__(cls, _device: Device) -> Any:
            return Own.__new__(cls)

        def manual_seed(self, seed: int) -> Any:
            Own.manual_seed(self, seed)
            return CudaGenerator.manual_seed(self, seed)

    return Generator


def draw_uniform(generator: CudaGenerator, tensor: Any, low: float, high: float) -> bool:
    """``tensor.uniform_(low, high)``; False where the type of the tensor is one that is not provided."""
    import torch

    torch.empty(0, dtype=tensor.dtype).uniform_(low, high)  # PyTorch's own words about bounds that will not do
    size = tensor.numel()
    if not _takes(tensor, size):
        return False
    dtype: Any = str(tensor.dtype).removeprefix("torch.")
    between: Any = {"low": low, "high": high, "dtype": dtype}
    _fill(tensor, fp8lab.torch_cuda_uniform((size,), **between, **generator.options(size)))
    return True


def draw_normal(generator: CudaGenerator, tensor: Any, mean: float, std: float) -> bool:
    """``tensor.normal_(mean, std)``; False where the type of the tensor is one that is not provided."""
    size = tensor.numel()
    if not _takes(tensor, size):
        return False
    _fill(tensor, fp8lab.torch_cuda_normal((size,), mean=mean, std=std, **generator.options(size)))
    return True


def _takes(tensor: Any, size: int) -> bool:
    """Whether the draw is one of float32, float16 or bfloat16 that the generator's record covers."""
    name = str(tensor.dtype)
    if name in ("torch.float32", "torch.float16", "torch.bfloat16") and 0 < size < 2**31:
        return True
    if size:
        warn_of_cpu_draw(f"a draw of {name.removeprefix('torch.')}")
    return False


def _fill(tensor: Any, values: Any) -> None:
    """The values in the type of the tensor."""
    import torch

    own = (
        torch.from_numpy(values) if values.dtype.kind == "f" else torch.from_numpy(values.view("u2")).view(tensor.dtype)
    )
    tensor.detach().copy_(own.view(tensor.shape))


_WARNED: set[str] = set()


def warn_of_cpu_draw(what: str) -> None:
    """Says, once for each name, that the GPU's numbers are not provided."""
    _warn_once(
        what,
        "has the numbers of PyTorch's CPU generator, not those of the emulated GPU: fp8lab.te has the GPU's "
        "for rand, randn, uniform_ and normal_ alone, in float32, float16 and bfloat16",
    )


def warn_of_cpu_factor(what: str) -> None:
    """The same of an initialization that draws the GPU's numbers, and factors them."""
    _warn_once(
        what,
        "draws the GPU's numbers, and has of them the factors of LAPACK on the CPU, whose last bits are not those of "
        "the emulated GPU",
    )


def warn_of_cpu_time() -> None:
    """Says once whose time it is that events measure."""
    name = "torch.cuda.Event.elapsed_time"
    _warn_once(name, "is the time of the CPU that emulates, which says nothing of the GPU's")


def _warn_once(what: str, text: str) -> None:
    if what in _WARNED:
        return
    _WARNED.add(what)
    warnings.warn(f"{what} {text}", UserWarning, stacklevel=5)
