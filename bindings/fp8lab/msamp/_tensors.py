# SPDX-License-Identifier: Apache-2.0
"""Tensors with a scale: what MS-AMP keeps weights, gradients and optimizer states in.

The behaviour is that of msamp/common/tensor (Azure/MS-AMP 9746ea8): meta.py, cast.py and tensor.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from fp8lab._arrays import check_choice, check_int, kind_of
from fp8lab._entry import entry
from fp8lab.literals import QtypeName
from fp8lab.msamp._arithmetic import decoded, encoded, number_amax

__all__ = ["ScalingMeta", "ScalingParameter", "ScalingTensor", "cast", "scaling_factor"]

#: The types of the values, and the largest number of each.
LARGEST = {
    "e4m3": 448.0,
    "e5m2": 57344.0,
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float.fromhex("0x1.fffffep127"),
}
#: In which torch type values are kept.
STORAGE = {
    "e4m3": torch.uint8,
    "e5m2": torch.uint8,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
FP8 = ("e4m3", "e5m2")
_PLAIN = (torch.float32, torch.float16, torch.bfloat16)
_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def is_here(device: Any) -> bool:
    """Whether a device is the CPU, or the one that fp8lab.te emulates on it."""
    from fp8lab.te._activation import active_device

    kind: str = torch.device(device).type
    if kind != "cuda":
        return kind == "cpu"
    try:
        active_device()
    except RuntimeError:
        return False
    return True


def check_plain(x: Any, argument: str) -> torch.Tensor:
    """Requires a tensor on the CPU of a type that MS-AMP casts from."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{argument} must be a torch tensor, not {kind_of(x)}")
    if not is_here(x.device):
        raise TypeError(f"{argument} must be on the CPU, not on {x.device}")
    if x.dtype not in _PLAIN:
        raise TypeError(f"{argument} must be float32, float16 or bfloat16, not {str(x.dtype).removeprefix('torch.')}")
    return x


@entry
def scaling_factor(amax: torch.Tensor, scale: torch.Tensor, largest: float, margin: int = 0) -> torch.Tensor:
    """The scale that MS-AMP makes of an amax: the power of two that brings it into (largest / 2, largest].

    Parameters
    ----------
    amax : Tensor of float32
    scale : Tensor of float32, of the same shape
        The scale so far. It stays where the amax is 0 or NaN, and is inverted where that is infinite: the original
        inverts last, for an exponent that is then minus infinity.
    largest : float
        The largest number of the type, such as 448 for E4M3.
    margin : int
        Subtracted from the exponent. The original calls it with 0 alone.

    Returns
    -------
    Tensor of float32
        2^(floor(log2(q)) - margin), where q is the rounded reciprocal of the amax times ``largest``, rounded: so
        PyTorch divides a number by a tensor. It is infinite for an amax below ``largest`` / 2^128. log2 is correctly
        rounded to float32.

    Raises
    ------
    TypeError
        For what is no float32 tensor.
    ValueError
        For a scale of another shape.
    """
    for name, x in (("amax", amax), ("scale", scale)):
        if check_plain(x, name).dtype != torch.float32:
            raise TypeError(f"{name} must be float32, not {_NAMES[x.dtype]}")
    if scale.shape != amax.shape:
        raise ValueError(f"scale must have the shape {tuple(amax.shape)} of amax, not {tuple(scale.shape)}")
    margin = check_int(margin, "margin", -(2**20), 2**20)
    quotient = torch.reciprocal(amax) * largest
    # A logarithm is not halfway between two floats, so float64's rounds well. torch's of float32 may be an ulp away.
    exponent = torch.floor(torch.log2(quotient.double()).float()) - margin
    magnitude = exponent.abs()
    power = torch.ldexp(torch.ones_like(amax), magnitude.nan_to_num(0, 0, 0).clamp(0, 127).int())
    power = torch.where(magnitude < 128, power, torch.full_like(amax, torch.inf))
    made = torch.where((amax > 0) & torch.isfinite(amax), power, scale)
    return torch.where(exponent < 0, 1 / made, made)


class ScalingMeta:
    """What belongs to a tensor with a scale: the type, the scale and its inverse, and the window of amaxes.

    Parameters
    ----------
    qtype : str
        "e4m3", "e5m2", "float16", "bfloat16" or "float32".
    window_size : int
        How many steps' amaxes there are. With 1, each cast makes its scale of its own tensor, just in time; with more,
        the first ``window_size`` optimizer steps do, and from then on the scale is the one that the last step made of
        the window.
    group : torch.distributed.ProcessGroup, optional
        Where the amax of a cast with ``sync`` is reduced.
    """

    def __init__(self, qtype: QtypeName, *, window_size: int = 1, group: Any = None) -> None:
        self.qtype = check_choice(qtype, "qtype", tuple(LARGEST))
        self.window_size = check_int(window_size, "window_size", 1, 2**20)
        self.scale = torch.ones(())
        self.scale_inv = torch.ones(())
        self.amax = torch.zeros(self.window_size)
        self.amax_counter = 0
        self.group = group

    @property
    def is_in_time(self) -> bool:
        """Whether a cast makes its scale of its own tensor."""
        return self.window_size == 1 or self.amax_counter < self.window_size

    def reset_scale(self) -> None:
        """Makes the scale of the newest amax. Of float32 and bfloat16 it is 1."""
        if self.qtype in ("float32", "bfloat16"):
            self.scale.fill_(1)
        else:
            self.scale.copy_(scaling_factor(self.amax[0], self.scale, LARGEST[self.qtype]))

    def copy_(self, other: ScalingMeta) -> None:
        """Takes over what the other has, but for the group."""
        self.qtype, self.window_size, self.amax_counter = other.qtype, other.window_size, other.amax_counter
        self.scale.copy_(other.scale)
        self.scale_inv.copy_(other.scale_inv)
        self.amax.copy_(other.amax)

    def clone(self) -> ScalingMeta:
        """A copy that shares nothing but the group."""
        made = copy.copy(self)
        made.scale, made.scale_inv, made.amax = self.scale.clone(), self.scale_inv.clone(), self.amax.clone()
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "group": None}  # a process group is of its process

    def __repr__(self) -> str:
        return (
            f"ScalingMeta({self.qtype!r}, scale={self.scale:g}, scale_inv={self.scale_inv:g}, "
            f"amax={self.amax.max():g}, window_size={self.window_size})"
        )


def _reduced_amax(meta: ScalingMeta) -> bool:
    """The largest amax of the ranks, NaN counted as infinity; whether there are several."""
    meta.amax[0] = torch.nan_to_num(meta.amax[0], nan=torch.inf, posinf=torch.inf)
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return False
    dist.all_reduce(meta.amax[0], op=dist.ReduceOp.MAX, group=meta.group)
    return True


def write_codes(x: torch.Tensor, meta: ScalingMeta) -> torch.Tensor:
    """The codes of x by the scale there is. As the kernel does it, the newest amax becomes the larger of itself and of
    x's, by their bits: a NaN that stands there stays, and one in x is not seen."""
    codes = encoded(x.detach().float() * meta.scale, meta.qtype)
    meta.amax[0] = torch.maximum(meta.amax[0], number_amax(x))
    return codes


@entry
def cast(x: torch.Tensor, qtype: QtypeName, meta: ScalingMeta | None = None, *, sync: bool = False) -> ScalingTensor:
    """A tensor in a type with a scale, as MS-AMP's ``Tensor.cast`` makes it.

    Parameters
    ----------
    x : Tensor of float32, float16 or bfloat16
        Not empty.
    qtype : str
        "e4m3", "e5m2", "float16", "bfloat16" or "float32".
    meta : ScalingMeta, optional
        Whose scale, window and history are used and updated; left out, a new one with a window of 1.
    sync : bool
        The amax is the largest of the ranks of ``meta.group``. The scale is then made of it whatever the window says.

    Returns
    -------
    ScalingTensor
        It keeps ``meta`` itself. FP8 codes are nearest even, and what is too large becomes the largest code: an
        infinity is seen in the amax alone.

    Raises
    ------
    TypeError
        For another type.
    ValueError
        For an empty tensor, and for a meta of another qtype.
    """
    check_plain(x, "x")
    check_choice(qtype, "qtype", tuple(LARGEST))
    if x.numel() == 0:
        raise ValueError("x must not be empty")
    if meta is None:
        meta = ScalingMeta(qtype)
    elif not isinstance(meta, ScalingMeta):
        raise TypeError(f"meta must be a ScalingMeta, not {kind_of(meta)}")
    elif meta.qtype != qtype:
        raise ValueError(f"meta.qtype must be the qtype {qtype}, not {meta.qtype}")
    with torch.no_grad():
        value = _values(x.detach().contiguous(), meta, sync, meta.is_in_time)
    return ScalingTensor(value, meta)


def _values(x: torch.Tensor, meta: ScalingMeta, sync: bool, in_time: bool) -> torch.Tensor:
    """x in the type of the meta, which is updated."""
    is_fp8 = meta.qtype in FP8
    if in_time or (sync and not is_fp8):
        meta.amax[0] = x.abs().max()  # in the type of x, and NaN if there is one
    is_reduced = _reduced_amax(meta) if sync else False
    if in_time or sync:
        meta.reset_scale()
    if not is_fp8:
        meta.scale_inv.copy_(torch.reciprocal(meta.scale))
        return (x * meta.scale.view(1)).to(STORAGE[meta.qtype])
    reduced = meta.amax[0].clone()
    codes = write_codes(x, meta)
    meta.scale_inv.copy_(torch.reciprocal(meta.scale))
    if is_reduced:
        meta.amax[0] = reduced
    return codes


class ScalingTensor:
    """Values with one scale: a number is its value times ``meta.scale_inv``.

    It is no ``torch.Tensor``: operations that change the numbers by a factor change ``meta.scale_inv`` alone, and
    ``float()`` gives a tensor. Of torch's functions it takes ``torch.nn.functional.linear``, as a weight.

    Parameters
    ----------
    value : Tensor
        uint8 codes of E4M3 or E5M2, or float16, bfloat16 or float32.
    meta : ScalingMeta
        It is kept, not copied.
    """

    def __init__(self, value: torch.Tensor, meta: ScalingMeta) -> None:
        if not isinstance(meta, ScalingMeta):
            raise TypeError(f"meta must be a ScalingMeta, not {kind_of(meta)}")
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"value must be a torch tensor, not {kind_of(value)}")
        if value.dtype != STORAGE[meta.qtype]:
            raise TypeError(f"value of qtype {meta.qtype} must be {STORAGE[meta.qtype]}, not {value.dtype}")
        self.value, self.meta = value, meta
        self.requires_grad = False
        self.grad: Any = None
        self._hooks: list[Callable[[Any], None]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            from fp8lab.msamp._linear import linear

            return linear(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        raise TypeError(f"torch's {name} takes no {cls.__name__}: call float() on it for a tensor")

    @property
    def qtype(self) -> Any:
        """The type of the values."""
        return self.meta.qtype

    def float(self) -> torch.Tensor:
        """The numbers in float32."""
        return self._plain(torch.float32)

    def half(self) -> torch.Tensor:
        """The numbers in float16."""
        return self._plain(torch.float16)

    def bfloat16(self) -> torch.Tensor:
        """The numbers in bfloat16."""
        return self._plain(torch.bfloat16)

    def _plain(self, dtype: torch.dtype) -> torch.Tensor:
        with torch.no_grad():
            value = decoded(self.value, self.qtype) if self.qtype in FP8 else self.value
            return (value * self.meta.scale_inv.view(1)).to(dtype)

    def to(self, *args: Any, **options: Any) -> Any:
        """The numbers in a torch type, or with a device alone the tensor itself, for there is the CPU only."""
        wanted = [one for one in (*args, *options.values()) if isinstance(one, torch.dtype)]
        for one in (*args, *options.values()):
            if isinstance(one, (str, torch.device)) and not is_here(one):
                raise TypeError(f"a ScalingTensor is on the CPU, and cannot go to {one}")
        if not wanted:
            return self
        if wanted[0] not in _PLAIN:
            raise TypeError(f"dtype must be float32, float16 or bfloat16, not {wanted[0]}")
        return self._plain(wanted[0])

    def cast(self, qtype: QtypeName) -> ScalingTensor:
        """The same numbers in another type. The amax is that of the meta, and the values are multiplied once: by the
        new scale times the old inverse. FP8 codes become float32 first, and are cast with an amax of their own."""
        check_choice(qtype, "qtype", tuple(LARGEST))
        if qtype == self.qtype:
            return self
        if self.qtype in FP8:
            return cast(self.float(), qtype)
        meta = ScalingMeta(qtype, window_size=self.meta.window_size)
        meta.amax = self.meta.amax.clone()
        meta.reset_scale()
        scale_inv = torch.reciprocal(meta.scale)
        meta.scale.mul_(self.meta.scale_inv)
        with torch.no_grad():
            value = _values(self.value.contiguous(), meta, False, False)
        meta.amax[0] = self.meta.amax[0]
        meta.scale_inv.copy_(scale_inv)
        return ScalingTensor(value, meta)

    def cast_(self, qtype: QtypeName) -> ScalingTensor:
        """Becomes ``cast(qtype)``; the meta stays the same object."""
        if qtype != self.qtype:
            made = self.cast(qtype)
            self.value = made.value
            self.meta.copy_(made.meta)
        return self

    def _factor(self, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            if other.numel() != 1:
                raise ValueError(
                    f"other must be a number or a tensor of one element, not of shape {tuple(other.shape)}"
                )
            return other.view_as(self.meta.scale_inv)
        return other

    def mul_(self, other: Any) -> ScalingTensor:
        """Multiplies the numbers, by one rounding of ``meta.scale_inv``."""
        with torch.no_grad():
            self.meta.scale_inv *= self._factor(other)
        return self

    def div_(self, other: Any) -> ScalingTensor:
        """Divides the numbers, by one rounding of ``meta.scale_inv``."""
        with torch.no_grad():
            self.meta.scale_inv /= self._factor(other)
        return self

    def zero_(self) -> ScalingTensor:
        """Sets all values to 0; the scale stays."""
        self.value.zero_()
        return self

    def copy_(self, other: ScalingTensor) -> ScalingTensor:
        """Takes over the values and what the other's meta says."""
        if not isinstance(other, ScalingTensor):
            raise TypeError(f"other must be a ScalingTensor, not {kind_of(other)}")
        if other.qtype != self.qtype or other.shape != self.shape:
            raise ValueError(
                f"other must be {self.qtype} of shape {tuple(self.shape)}, not {other.qtype} of {tuple(other.shape)}"
            )
        with torch.no_grad():
            self.value.copy_(other.value)
        self.meta.copy_(other.meta)
        return self

    def abs(self) -> ScalingTensor:
        """The magnitudes."""
        value = self.value & 0x7F if self.qtype in FP8 else self.value.abs()
        return ScalingTensor(value, self.meta.clone())

    def max(self) -> torch.Tensor:
        """The largest number."""
        return self.float().max()

    def min(self) -> torch.Tensor:
        """The smallest number."""
        return self.float().min()

    def isnan(self) -> torch.Tensor:
        """Where the values are NaN. As in the original, of FP8 codes 0x7F alone is one."""
        return self.value == 127 if self.qtype in FP8 else torch.isnan(self.value)

    def has_inf_or_nan(self) -> bool:
        """Whether the newest amax is infinite or NaN: codes have saturated, and do not tell."""
        return not bool(torch.isfinite(self.meta.amax[0]))

    def t(self) -> ScalingTensor:
        """The transpose, with the same meta."""
        return ScalingTensor(self.value.t(), self.meta)

    def detach(self) -> ScalingTensor:
        """Another tensor with the same value and meta."""
        return ScalingTensor(self.value, self.meta)

    @property
    def data(self) -> ScalingTensor:
        """The same as ``detach()``."""
        return self.detach()

    def clone(self) -> ScalingTensor:
        """A copy that shares nothing."""
        return ScalingTensor(self.value.clone(), self.meta.clone())

    def cpu(self) -> ScalingTensor:
        """A copy, as in the original."""
        return self.clone()

    def numel(self) -> int:
        """How many values there are."""
        return int(self.value.numel())

    def size(self, *of: int) -> Any:
        """The shape, or one side of it."""
        return self.value.size(*of)

    def is_contiguous(self) -> bool:
        """Whether the values are."""
        return bool(self.value.is_contiguous())

    def is_floating_point(self) -> bool:
        """False: ``model.half()`` leaves it as it is."""
        return False

    def is_complex(self) -> bool:
        """False."""
        return False

    def requires_grad_(self, requires_grad: bool = True) -> ScalingTensor:
        """Whether backward computes its gradient."""
        self.requires_grad = requires_grad
        return self

    def register_backward_post_hook(self, hook: Callable[[Any], None]) -> None:
        """Has ``hook`` be called with the gradient, each time backward has set it."""
        self._hooks.append(hook)

    def set_gradient(self, gradient: Any) -> None:
        """Sets ``grad`` and calls the hooks."""
        self.grad = gradient
        for hook in self._hooks:
            hook(gradient)

    @property
    def shape(self) -> torch.Size:
        """The shape of the values."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """How many dimensions they have."""
        return int(self.value.ndim)

    @property
    def dtype(self) -> torch.dtype:
        """The type that they are kept in: uint8 for FP8 codes."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return self.value.device

    @property
    def is_leaf(self) -> bool:
        """True: autograd does not go through it."""
        return True

    @property
    def is_sparse(self) -> bool:
        """False."""
        return False

    @property
    def is_meta(self) -> bool:
        """Whether there are no values, on torch's device "meta"."""
        return bool(self.value.is_meta)

    @property
    def grad_fn(self) -> None:
        """None: autograd does not go through it."""
        return None

    def __len__(self) -> int:
        return len(self.value)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_hooks": []}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.float()}, {self.meta})"


class ScalingParameter(ScalingTensor):
    """A ScalingTensor that is a module's parameter.

    Parameters
    ----------
    tensor : ScalingTensor
    requires_grad : bool
    """

    def __init__(self, tensor: ScalingTensor, requires_grad: bool = True) -> None:
        super().__init__(tensor.value, tensor.meta)
        self.requires_grad = requires_grad
        self.layer: Any = None  # whose weight it is

    def clone(self) -> ScalingParameter:
        """A copy that shares nothing."""
        return ScalingParameter(super().clone(), self.requires_grad)
