# SPDX-License-Identifier: Apache-2.0
"""The FP8 linear layer of MS-AMP, and the conversion of a model's layers.

After msamp/nn (functional.py, linear.py, state.py) and msamp/operators/gemm of Azure/MS-AMP 9746ea8.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

import fp8lab
from fp8lab._arrays import check_bool, check_choice, check_int, kind_of
from fp8lab._entry import entry
from fp8lab.literals import QtypeName
from fp8lab.msamp._tensors import (
    LARGEST,
    STORAGE,
    ScalingMeta,
    ScalingParameter,
    ScalingTensor,
    cast,
    check_plain,
    is_here,
    scaling_factor,
)
from fp8lab.te.devices import Device, find_device
from fp8lab.te.tensors import as_tensor

__all__ = ["Linear", "ModelState", "replace_linears"]

#: Optimizer steps during which inputs and gradients of outputs are scaled just in time.
WINDOW = 16
_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


class ModelState:
    """What the FP8 layers of a model share: the device, and what the next optimizer step updates.

    Parameters
    ----------
    device : str
        One of ``fp8lab.te.devices()``. The original runs FP8 GEMMs where the device's name has "H100" in it. Elsewhere
        it dequantizes both operands to the output's type and multiplies them so, and this does too.

    Attributes
    ----------
    metas : list
        The scales of each layer: of "input", "ograd" and "wgrad".
    is_ready : bool
        Whether a layer ran forward since the last update.
    keeps_gradients : bool
        Whether gradients of weights stay in the GEMM's type, until something reduces them.
    auto_scale : AutoScale or None
        What reduces them, of the paper's reduction.
    """

    def __init__(self, device: str = "h100") -> None:
        self.device: Device = find_device(device)
        self.metas: list[dict[str, ScalingMeta]] = []
        self.is_ready = False
        self.keeps_gradients = False
        self.auto_scale: Any = None

    @property
    def has_fp8_gemm(self) -> bool:
        """Whether GEMMs take FP8 codes."""
        return "h100" in self.device.title.lower()

    def update_scales(self) -> None:
        """The end of an optimizer step: new scales of inputs and of gradients of outputs, for whose window the next
        step begins. Nothing happens where no layer ran forward since the last one."""
        if not self.is_ready:
            return
        self.is_ready = False
        for name in ("input", "ograd"):
            _update([metas[name] for metas in self.metas])

    def __repr__(self) -> str:
        return f"<ModelState of {len(self.metas)} FP8 layers on {self.device.name}>"


@entry
def _update(metas: list[ScalingMeta]) -> None:
    """Makes the scales of the windows, this step included, and moves these on. After an infinite or NaN amax a window
    begins anew."""
    amaxes = torch.stack([meta.amax for meta in metas])
    is_bad = ~torch.isfinite(amaxes[:, 0])
    amaxes[is_bad, 0] = 0
    scales = scaling_factor(amaxes.amax(1), torch.stack([meta.scale for meta in metas]), LARGEST[metas[0].qtype])
    amaxes = amaxes.roll(1, 1)
    amaxes[:, 0] = 0
    for meta, scale, window, begins_anew in zip(metas, scales, amaxes, is_bad.tolist(), strict=True):
        meta.scale.copy_(scale)
        meta.amax.copy_(window)
        meta.amax_counter = 0 if begins_anew else meta.amax_counter + 1


@functools.cache
def _recipe(model: Any, promote_k: int, output: Any) -> Any:
    return fp8lab.GemmRecipe(model=model, promote_k=promote_k, output=output)


def _padded(matrix: torch.Tensor) -> torch.Tensor:
    """With zeros up to multiples of 16, as cuBLAS wants it."""
    rows, columns = (-size % 16 for size in matrix.shape)
    return torch.nn.functional.pad(matrix, (0, columns, 0, rows)) if rows or columns else matrix


@entry
def gemm(
    left: ScalingTensor,
    right: ScalingTensor,
    dtype: torch.dtype,
    device: Device,
    has_fp8: bool,
    splits: bool,
    c: torch.Tensor | None = None,
) -> torch.Tensor:
    """left @ right^T, (rows, K) by (columns, K), plus c; ``splits`` asks for the split accumulator."""
    rows, columns = left.shape[0], right.shape[0]
    output = _NAMES[dtype]
    addend = None if c is None else _padded(c.detach().float()).numpy()
    threads = torch.get_num_threads()
    if not has_fp8:
        model = {"float32": device.tf32, "float16": device.fp16, "bfloat16": device.bf16}[output]
        wide = [_padded(one.to(dtype)) for one in (left, right)]
        made = fp8lab.gemm(wide[0], wide[1], _recipe(model, 0, output), c=addend, threads=threads)
        return _unpadded(made, rows, columns)
    promote_k = device.promote_k if splits else 0
    a, b = (_padded(one.value).contiguous().numpy() for one in (left, right))
    scales = [left.meta.scale_inv, right.meta.scale_inv]
    options: dict[str, Any] = {"format_a": left.qtype, "format_b": right.qtype, "threads": threads}
    if all(bool(torch.isfinite(scale)) for scale in scales):
        options |= {"scale_a": float(scales[0]), "scale_b": float(scales[1]), "c": addend}
        return _unpadded(fp8lab.gemm(a, b, _recipe(device.fp8, promote_k, output), **options), rows, columns)
    # An infinite or NaN scale_inv multiplies each sum.
    total = as_tensor(fp8lab.gemm(a, b, _recipe(device.fp8, promote_k, "float32"), **options)) * (scales[0] * scales[1])
    total = total if addend is None else total + torch.from_numpy(addend)
    return total[:rows, :columns].contiguous().to(dtype)


def _unpadded(product: Any, rows: int, columns: int) -> torch.Tensor:
    return as_tensor(product)[:rows, :columns].contiguous()


class _Function(torch.autograd.Function):
    """y = x W^T in FP8. The gradient of W goes to the ScalingTensor, which autograd does not know."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: ScalingTensor, layer: Linear, holder: torch.Tensor) -> torch.Tensor:
        ctx.layer, ctx.weight, ctx.dtype = layer, weight, holder.dtype
        ctx.x_fp8 = cast(x, "e4m3", layer.scaling_metas["input"])
        ctx.weight_fp8 = weight.cast("e4m3")
        state = layer.state
        return gemm(ctx.x_fp8, ctx.weight_fp8, ctx.dtype, state.device, state.has_fp8_gemm, splits=False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        state, weight = ctx.layer.state, ctx.weight
        dy_fp8 = cast(dy.contiguous(), "e5m2", ctx.layer.scaling_metas["ograd"])
        dx = None
        if ctx.needs_input_grad[0]:
            dx = gemm(dy_fp8, ctx.weight_fp8.t(), ctx.dtype, state.device, state.has_fp8_gemm, splits=True)
        if weight.requires_grad:
            before = None if weight.grad is None else weight.grad.to(ctx.dtype)
            dw = gemm(dy_fp8.t(), ctx.x_fp8.t(), ctx.dtype, state.device, state.has_fp8_gemm, splits=True, c=before)
            weight.set_gradient(
                dw if state.keeps_gradients else cast(dw, "e4m3", ctx.layer.scaling_metas["wgrad"], sync=True)
            )
        return dx, None, None, None


def _output_dtype(x: torch.Tensor) -> torch.dtype:
    for kind in ("cuda", "cpu"):
        if torch.is_autocast_enabled(kind):
            return torch.get_autocast_dtype(kind)
    return x.dtype


def linear(x: Any, weight: ScalingTensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``torch.nn.functional.linear`` with the weight of a ``Linear``."""
    layer = getattr(weight, "layer", None)
    if layer is None:
        raise ValueError("weight must be that of an fp8lab.msamp.Linear: another ScalingTensor has no scales of inputs")
    check_plain(x, "x")
    if x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"x must have {weight.shape[1]} columns, as the weight does, not shape {tuple(x.shape)}")
    if x.numel() == 0:
        raise ValueError(f"x must not be empty, and has shape {tuple(x.shape)}")
    dtype = _output_dtype(x)
    if dtype not in _NAMES:
        raise TypeError(f"autocast's type must be float32, float16 or bfloat16, not {dtype}")
    layer.state.is_ready = True
    holder = torch.empty(0, dtype=dtype, requires_grad=True)  # has backward run where x needs no gradient
    y: torch.Tensor = _Function.apply(x.reshape(-1, x.shape[-1]), weight, layer, holder)
    if bias is not None:
        y = y + bias.type(dtype).view(1, -1)
    return y.view(*x.shape[:-1], -1)


class Linear(torch.nn.Module):
    """``torch.nn.Linear`` as MS-AMP's FP8Linear computes it: x and W in E4M3, dy in E5M2, the gradient of W in E4M3.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    weight_qtype : str
        In what the weight is kept. Each forward pass makes E4M3 of another type.
    bias_dtype : torch.dtype
    state : ModelState, optional
        That of the model; left out, the layer has one of its own, on "h100".

    The weight is 0: ``replace_linears`` and ``initialize`` make such layers of a model's.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        weight_qtype: QtypeName = "float16",
        bias_dtype: torch.dtype = torch.float32,
        state: ModelState | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_int(in_features, "in_features", 1, 2**31 - 1)
        self.out_features = check_int(out_features, "out_features", 1, 2**31 - 1)
        check_choice(weight_qtype, "weight_qtype", tuple(LARGEST))
        if state is not None and not isinstance(state, ModelState):
            raise TypeError(f"state must be a ModelState, not {kind_of(state)}")
        self.state = ModelState() if state is None else state
        self.scaling_metas = {
            "input": ScalingMeta("e4m3", window_size=WINDOW),
            "wgrad": ScalingMeta("e4m3"),
            "ograd": ScalingMeta("e5m2", window_size=WINDOW),
        }
        self.state.metas.append(self.scaling_metas)
        value = torch.zeros(out_features, in_features, dtype=STORAGE[weight_qtype])
        weight = ScalingParameter(ScalingTensor(value, ScalingMeta(weight_qtype)))
        weight.layer = self
        self._parameters["weight"] = weight
        has_bias = check_bool(bias, "bias")
        self.bias = torch.nn.Parameter(torch.zeros(out_features, dtype=bias_dtype)) if has_bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x W^T + b; the products are of autocast's type, or else of x's."""
        return linear(x, self._parameters["weight"], self.bias)

    def _apply(self, fn: Any, recurse: bool = True) -> Linear:
        """What ``to``, ``half`` and their like do: the bias alone changes."""
        weight = self._parameters.pop("weight")
        try:
            super()._apply(fn, recurse)
        finally:
            rest = dict(self._parameters)
            self._parameters.clear()
            self._parameters.update({"weight": weight, **rest})
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        key = prefix + "weight"
        given = state_dict.get(key)
        if given is None:
            rest[2].append(key) if rest[1] else None  # strict, and the missing keys
        elif not isinstance(given, ScalingTensor):
            rest[4].append(f"{key} must be a ScalingTensor, not {kind_of(given)}: load it before the conversion")
        else:
            self.weight.copy_(given)
        weight = self._parameters.pop("weight")
        try:
            super()._load_from_state_dict({k: v for k, v in state_dict.items() if k != key}, prefix, *rest)
        finally:
            others = dict(self._parameters)
            self._parameters.clear()
            self._parameters.update({"weight": weight, **others})
        if key in rest[3]:
            rest[3].remove(key)

    def extra_repr(self) -> str:
        """What torch prints of it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


# --- a model ----------------------------------------------------------------------------------------------------------


def check_model(model: Any) -> dict[int, tuple[str, torch.nn.Linear]]:
    """The layers that become FP8, by identity. What the conversion would break is refused."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    owners: dict[int, str] = {}
    layers: dict[int, tuple[str, torch.nn.Linear]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        name = path or "the model itself"
        if isinstance(module, Linear):
            raise ValueError(f"{name} is an fp8lab.msamp.Linear already: a model is converted once")
        is_new = isinstance(module, torch.nn.Linear) and not getattr(module, "use_fp32_linear", False)
        if is_new and id(module) in layers:
            raise ValueError(f"{layers[id(module)][0]} and {name} are the same layer, which a model cannot share")
        if is_new:
            layers[id(module)] = (name, module)
        if isinstance(module, torch.nn.MultiheadAttention) and not getattr(module.out_proj, "use_fp32_linear", False):
            raise ValueError(
                f"{name} is a MultiheadAttention, which computes with the weight of its out_proj itself: "
                "set out_proj.use_fp32_linear = True"
            )
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = owners.setdefault(id(parameter), name)
        if first != name and any(parameter is layer.weight or parameter is layer.bias for _, layer in layers.values()):
            raise ValueError(
                f"{first} and {name} are one parameter, and the conversion of its Linear would untie them: "
                "set use_fp32_linear = True on that layer"
            )
    for name, layer in layers.values():
        if layer.weight.dtype not in _NAMES:
            raise TypeError(f"{name}.weight must be float32, float16 or bfloat16, not {layer.weight.dtype}")
        if not is_here(layer.weight.device):
            raise TypeError(f"{name}.weight must be on the CPU, not on {layer.weight.device}")
    return layers


def replace_linears(
    model: torch.nn.Module,
    *,
    weight_qtype: QtypeName = "float16",
    device: str = "h100",
    src_rank: int = 0,
    group: Any = None,
) -> torch.nn.Module:
    """Makes each ``torch.nn.Linear`` of a model an FP8 one, as MS-AMP's ``LinearReplacer.replace`` does.

    Parameters
    ----------
    model : torch.nn.Module
        On the CPU. It is changed in place. A layer with a true attribute ``use_fp32_linear`` stays.
    weight_qtype : str
        In what weights are kept.
    device : str
        One of ``fp8lab.te.devices()``.
    src_rank : int
        Of torch.distributed, where it is initialized: this rank's weights go to all. As in the original their values
        and inverse scales do, and their amaxes do not, of which the first step makes the scales of E4M3: give all ranks
        one seed.
    group : torch.distributed.ProcessGroup, optional
        Where weights and amaxes of gradients go.

    Returns
    -------
    torch.nn.Module
        The model, or of a single Linear the new layer. Its ``ModelState`` is ``state`` of each layer.

    Raises
    ------
    TypeError, ValueError
        For what is no module, for weights of other types, and for layers or parameters of layers that are shared,
        which the original silently unties.
    """
    state = ModelState(device)
    check_choice(weight_qtype, "weight_qtype", tuple(LARGEST))
    check_model(model)
    converted = _replaced(model, weight_qtype, state)
    parameters = [one for one in converted.parameters() if isinstance(one, ScalingParameter)]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        for parameter in parameters:
            dist.broadcast(parameter.value, src_rank, group=group)
            dist.broadcast(parameter.meta.scale_inv, src_rank, group=group)
    for metas in state.metas:
        for meta in metas.values():
            meta.group = group
    # Its gradients are no tensors: the optimizer's all_reduce_grads() reduces them.
    ignored = [name for name, one in converted.named_parameters() if isinstance(one, ScalingParameter)]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(converted, ignored)
    return converted


def _replaced(module: torch.nn.Module, weight_qtype: QtypeName, state: ModelState) -> torch.nn.Module:
    if isinstance(module, torch.nn.Linear):
        return module if getattr(module, "use_fp32_linear", False) else _converted(module, weight_qtype, state)
    for name, child in list(module.named_children()):
        setattr(module, name, _replaced(child, weight_qtype, state))
    return module


def _converted(layer: torch.nn.Linear, weight_qtype: QtypeName, state: ModelState) -> Linear:
    bias = layer.bias
    made = Linear(
        layer.in_features, layer.out_features, bias is not None, weight_qtype=weight_qtype, state=state,
        bias_dtype=torch.float32 if bias is None else bias.dtype,
    )  # fmt: skip
    with torch.no_grad():
        made.weight.copy_(cast(layer.weight.detach(), weight_qtype))
        if made.bias is not None:
            made.bias.copy_(bias)
    return made
