# SPDX-License-Identifier: Apache-2.0
"""A Linear module of Transformer Engine that is split over ranks, run on a CPU with the values of its tensors.

The release's own Linear, quantizers and collectives' callers run as they are, a thread for each rank. te_environment.py
stands for CUDA. Here the compiled extension casts by fp8lab.encode and multiplies by fp8lab.gemm, and torch.distributed
adds the ranks' tensors in ascending order, every sum rounded to their type.
"""

import contextlib
import functools
import inspect
import threading
from types import SimpleNamespace

import fp8lab
import numpy as np
from te_environment import Release, replaced
from te_extension import Extension

FORMATS = {"kFloat8E4M3": "e4m3", "kFloat8E5M2": "e5m2"}
MODEL = "hopper_wgmma_fp8"
DONE = SimpleNamespace(wait=lambda: None)  # a collective that nobody waits for


def array_of(tensor):
    """float32 values of a tensor, whatever its type."""
    return tensor.detach().float().numpy()


class ValueExtension(Extension):
    """The extension with codes in the payloads and products of them."""

    def cast(self, source, scale, amax, scale_inv, dtype, payloads, noop=None) -> None:
        raise RuntimeError("casts are those of quantizers")

    def fp8_transpose(self, payload, _dtype, out=None):
        transposed = payload.reshape(-1, payload.shape[-1]).t().contiguous()
        return transposed if out is None else out.copy_(transposed)

    def quantize(self, source, quantizer, out=None, noop=None):
        import torch

        if hasattr(quantizer, "block_scaling_dim"):
            return self.quantize_tiles(source, quantizer, out)
        values = array_of(source)
        is_current = hasattr(quantizer, "with_amax_reduction")
        scale = self.scale_of(quantizer, np.abs(values).max()) if is_current else np.float32(quantizer.scale.item())
        format = FORMATS[quantizer.dtype.name]
        if out is None:
            out = self.create(quantizer, source.shape, source.dtype)
        codes = torch.from_numpy(fp8lab.encode(values * scale, format))
        if out._data is not None:
            out._data.copy_(codes)
        if out._transpose is not None:
            out._transpose.copy_(codes.reshape(-1, codes.shape[-1]).t())
            out._transpose_invalid = False
        out._scale_inv.fill_(float(np.float32(1) / scale))
        return out

    def scale_of(self, quantizer, amax):
        """The extension's all-reduce of the amax, and the scale that it makes."""
        import torch

        if quantizer.with_amax_reduction:
            largest = torch.tensor([float(amax)])
            torch.distributed.all_reduce(
                largest, op=torch.distributed.ReduceOp.MAX, group=quantizer.amax_reduction_group
            )
            amax = largest.numpy()[0]
        recipe = fp8lab.JustInTime(format=FORMATS[quantizer.dtype.name])
        return np.float32(recipe.tile_scale(float(amax)).factor)

    def quantize_tiles(self, source, quantizer, out):
        """Codes and scales of both usages, in the layouts of a Float8BlockwiseQTensor: scales transposed but for 2-D
        tiles."""
        import torch

        if out is None:
            out = self.create(quantizer, source.shape, source.dtype)
        rows = 128 if quantizer.block_scaling_dim == 2 else 1
        recipe = fp8lab.Block(
            format=FORMATS[quantizer.dtype.name], rows=rows, force_pow_2_scales=quantizer.force_pow_2_scales
        )
        for direction, codes, scales in (
            ("rowwise", out._rowwise_data, out._rowwise_scale_inv),
            ("columnwise", out._columnwise_data, out._columnwise_scale_inv),
        ):
            if codes is None:
                continue
            q = fp8lab.quantize(array_of(source), recipe, direction=direction, input_type="bfloat16")
            codes.copy_(torch.from_numpy(q.codes))
            stored = q.scale_inv if rows == 128 else q.scale_inv.T
            scales.zero_()
            scales[: stored.shape[0], : stored.shape[1]] = torch.from_numpy(np.ascontiguousarray(stored))
        return out

    def create_tiles(self, quantizer, shape, dtype):
        import torch

        fields = {
            "fp8_dtype": quantizer.dtype,
            "quantizer": quantizer,
            "is_2D_scaled": quantizer.block_scaling_dim == 2,
        }
        usages = {"rowwise": (False, quantizer.rowwise_usage), "columnwise": (True, quantizer.columnwise_usage)}
        for name, (columnwise, used) in usages.items():
            sides = quantizer.get_columnwise_shape(shape) if columnwise else tuple(shape)
            scales = quantizer.get_scale_shape(shape, columnwise)
            fields[f"{name}_data"] = self.payload(sides) if used else None
            fields[f"{name}_scale_inv"] = torch.zeros(scales) if used else None
        if "fake_dtype" in inspect.signature(self.release.tiled_storage.__new__).parameters:
            fields["fake_dtype"] = dtype
        return self.release.tiled_storage(**fields)

    def swap_first_dims(self, source, out=None):
        swapped = source.transpose(0, 1).contiguous()
        return swapped if out is None else out.copy_(swapped)

    def create(self, quantizer, shape, dtype):
        if hasattr(quantizer, "block_scaling_dim"):
            return self.create_tiles(quantizer, shape, dtype)
        if not hasattr(quantizer, "scale"):  # that of current scaling in later releases: the cast writes scale_inv
            quantizer.scale = self.release.torch.ones(1)
        return super().create(quantizer, shape, dtype)

    def bgrad_quantize(self, source, quantizer):
        return source.float().sum(dim=0).to(source.dtype), self.quantize(source, quantizer)

    def generic_gemm(self, a, a_transposed, b, b_transposed, out, _quantizer, out_dtype, bias, *rest, **_overlap):
        import torch

        if out is not None:
            raise RuntimeError("no product is added to a tensor here")
        use_split_accumulator = rest[7]
        sides = [self.side(b, rowwise=not b_transposed), self.side(a, rowwise=a_transposed)]
        dtype = {"kBFloat16": "bfloat16", "kFloat32": "float32"}[out_dtype.name]
        result = fp8lab.gemm(
            *(codes for codes, _, _ in sides), model=MODEL, format_a=sides[0][1], format_b=sides[1][1], scale_a=sides[0][2],
            scale_b=sides[1][2], promote_k=128 if use_split_accumulator else None,
            scale_order=None if np.ndim(sides[0][2]) == 0 else "accumulator_first",
            bias=None if bias is None or rest[3] else array_of(bias), out_dtype=dtype,
        )  # fmt: skip
        values = torch.from_numpy(result.astype(np.float32)).to(getattr(torch, dtype))
        return values, None, None, None

    def side(self, tensor, *, rowwise):
        """Codes with K contiguous, their format and scales."""
        if hasattr(tensor, "_is_2D_scaled"):
            return self.tiled_side(tensor, rowwise=rowwise)
        payload = tensor._data if rowwise else tensor._transpose
        if payload is None or (not rowwise and tensor._transpose_invalid):
            raise RuntimeError("the product reads a payload that the tensor lacks")
        return payload.numpy(), FORMATS[tensor._fp8_dtype.name], tensor._scale_inv.item()

    def tiled_side(self, tensor, *, rowwise):
        codes = tensor._rowwise_data if rowwise else tensor._columnwise_data
        scales = tensor._rowwise_scale_inv if rowwise else tensor._columnwise_scale_inv
        if codes is None:
            raise RuntimeError("the product reads a payload that the tensor lacks")
        codes, scales = codes.numpy(), scales.numpy()
        rows, tiles = codes.shape[0], -(-codes.shape[1] // 128)
        scales = scales[: -(-rows // 128), :tiles] if tensor._is_2D_scaled else scales[:tiles, :rows].T
        return codes, FORMATS[tensor._fp8_dtype.name], np.ascontiguousarray(scales)


class Collectives:
    """torch.distributed of threads that are ranks."""

    def __init__(self, torch, world: int) -> None:
        self.torch, self.world = torch, world
        self.local = threading.local()
        self.barrier = threading.Barrier(world, timeout=60)
        self.given: list = [None] * world

    def exchanged(self, tensor) -> list:
        self.given[self.local.rank] = tensor.detach().clone()
        self.barrier.wait()
        tensors = list(self.given)
        self.barrier.wait()
        return tensors

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        tensors = self.exchanged(tensor)
        add = self.torch.maximum if op == self.torch.distributed.ReduceOp.MAX else self.torch.add
        tensor.detach().copy_(functools.reduce(add, tensors))
        return DONE

    def reduce_scatter_tensor(self, out, tensor, op=None, group=None, async_op=False):
        total = functools.reduce(self.torch.add, self.exchanged(tensor))
        out.detach().copy_(total.chunk(self.world)[self.local.rank])
        return DONE

    def all_gather_into_tensor(self, out, tensor, group=None, async_op=False):
        out.detach().copy_(self.torch.cat(self.exchanged(tensor)).view(out.shape))
        return DONE

    def replacements(self):
        distributed = self.torch.distributed
        names = ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor")
        return [
            (distributed, "is_initialized", lambda: True),
            (distributed, "get_world_size", lambda group=None: self.world),
            (distributed, "get_rank", lambda group=None: self.local.rank),
            (distributed, "_coalescing_manager", lambda **kwargs: contextlib.nullcontext(DONE)),
            (self.torch.version, "cuda", "12.9"),  # from which on there is block scaling
            *((distributed, name, getattr(self, name)) for name in names),
        ]


@functools.cache
def release_of(tag: str) -> Release:
    extension = ValueExtension(tuple(int(part) for part in tag[1:].split(".")), None)
    for name in ("bgrad_quantize", "swap_first_dims"):
        setattr(extension.module, name, getattr(extension, name))
    release = Release(tag, extension.module, extension.operators)
    release.tiled_storage = release.load(
        "pytorch.tensor.storage.float8_blockwise_tensor_storage"
    ).Float8BlockwiseQTensorStorage
    extension.release = release
    return release


def run_split(tag: str, recipe: str, mode: str, sequence: bool, parts: list[dict]) -> list[dict]:
    """What each rank's Linear makes of its part of x, w, bias and dy: y, dx and dw, as float32 values.

    ``recipe`` is the name of a class of transformer_engine.common.recipe.
    """
    release = release_of(tag)
    torch = release.torch
    world = len(parts)
    collectives = Collectives(torch, world)
    results: list = [None] * world
    group = object()

    def one(rank: int) -> None:
        collectives.local.rank = rank
        try:
            results[rank] = run_rank(release, mode, sequence, world, group, parts[rank])
        except BaseException as error:
            results[rank] = error
            collectives.barrier.abort()

    # Ranks share the release's global state, whose updates, which come after all that is compared, are left out.
    update = (release.manager, "reduce_and_update_fp8_tensors", lambda *args, **kwargs: None)
    with release.active(), replaced([*collectives.replacements(), update]):
        region = release.autocast(enabled=True, recipe=getattr(release.recipe, recipe)())
        collectives.local.rank = 0
        region.__enter__()
        release.regions.append(region)
        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        release.regions.clear()  # left as they are: an exit would reduce amaxes, which no test reads
        owner, initial = release.globals
        for name, value in initial.items():
            setattr(owner, name, value)
        owner.reset()
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
        raise error
    return results


def run_rank(release, mode, sequence, world, group, part) -> dict:
    torch = release.torch
    tensors = {name: torch.from_numpy(values).to(torch.bfloat16) for name, values in part.items()}
    rows, columns = tensors["w"].shape
    features = (columns, rows * world) if mode == "column" else (columns * world, rows)
    module = release.linear.Linear(
        *features, bias="bias" in tensors, params_dtype=torch.bfloat16, parallel_mode=mode, tp_size=world, tp_group=group,
        sequence_parallel=sequence, init_method=torch.nn.init.ones_, device="cpu",
    )  # fmt: skip
    module.weight.data.copy_(tensors["w"])
    if "bias" in tensors:
        module.bias.data.copy_(tensors["bias"])
    x = tensors["x"].requires_grad_(True)
    y = module(x)
    y.backward(tensors["dy"])
    return {"y": array_of(y), "dx": array_of(x.grad), "dw": array_of(module.weight.grad)}
