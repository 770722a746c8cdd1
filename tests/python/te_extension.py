# SPDX-License-Identifier: Apache-2.0
"""What the compiled extension of Transformer Engine does to the FP8 state: casts, transposes, products, updates.

A cast keeps only what the state needs. The amax slot takes the largest magnitude. The first eight bytes of the payload
are the scale that the cast used and the first value; the next one is the format: a product can say how its bytes were
made. An update runs the kernel of
the release, compiled for the host.
"""

import enum
import struct
from types import SimpleNamespace

import numpy as np
from te_environment import FakeModule

FP8_MAX = {"kFloat8E4M3": 448.0, "kFloat8E5M2": 57344.0}
ALGORITHMS = {"most_recent": 1, "max": 2}


class DType(enum.IntEnum):
    kByte, kInt16, kInt32, kInt64, kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat4E2M1 = range(10)


class PublicDType(enum.IntEnum):
    """The members that the extension of 2.x shows."""

    kByte, kInt32, kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat4E2M1 = 0, 2, 4, 5, 6, 7, 8, 9


class FP8FwdTensors(enum.IntEnum):
    (
        GEMM1_INPUT,
        GEMM1_WEIGHT,
        GEMM1_OUTPUT,
        GEMM2_INPUT,
        GEMM2_WEIGHT,
        GEMM2_OUTPUT,
        GEMM3_INPUT,
        GEMM3_WEIGHT,
        GEMM3_OUTPUT,
    ) = range(9)


class FP8BwdTensors(enum.IntEnum):
    GRAD_OUTPUT1, GRAD_INPUT1, GRAD_OUTPUT2, GRAD_INPUT2, GRAD_OUTPUT3, GRAD_INPUT3 = range(6)


class FP8TensorMeta:
    def __init__(self) -> None:
        self.scale = self.scale_inv = self.amax_history = None


def largest(tensor) -> float:
    """The amax that a cast finds: the largest magnitude, NaN left out."""
    import torch

    magnitudes = tensor.detach().abs().float()
    return torch.where(magnitudes.isnan(), 0.0, magnitudes).max().item()


def header_of(payload) -> tuple[float, float, int]:
    """The scale that the cast of these bytes used, its first value and the format; all bits set where no cast wrote."""
    return struct.unpack("<ffB", bytes(payload.detach().view(-1)[:9].numpy().view(np.uint8)))


def write_header(payload, header: tuple[float, float, int]) -> None:
    import torch

    flat = payload.detach().view(-1)
    flat[:9] = torch.from_numpy(np.frombuffer(struct.pack("<ffB", *header), np.uint8).copy()).view(flat.dtype)


def sides(tensor) -> tuple[int, int]:
    """The two sides of a matrix, quantized or not."""
    if not hasattr(tensor, "_scale_inv"):
        return tensor.shape
    return tensor._data.shape if tensor._data is not None else tensor._transpose.shape[::-1]


def scalar(tensor, offset: int = 0) -> float:
    return tensor.detach().reshape(-1)[offset].item()


class Extension:
    """The functions of one release, and the casts and products since `trace` was last emptied."""

    def __init__(self, tag: tuple[int, ...], update_kernel) -> None:
        self.writes_scale_inv = tag < (0, 5) or tag >= (1, 11)
        self.update_kernel = update_kernel
        self.trace: list[dict] = []
        self.release = None
        self.module = FakeModule("transformer_engine_torch")
        for owner in (enum_members(tag), functions(self)):
            for name, value in owner.items():
                setattr(self.module, name, value)
        self.operators = SimpleNamespace(
            cast_to_fp8_ts=self.cast_to_fp8_ts,
            cast_to_fp8_noalloc_ts=self.cast_to_fp8_noalloc_ts,
            te_gemm_ts=self.te_gemm_ts,
        )

    # --- casts --------------------------------------------------------------------------------------------------------

    def cast(self, source, scale, amax, scale_inv, dtype, payloads, noop=None) -> None:
        """One launch of a cast kernel; the other arguments are tensors of one element."""
        if noop is not None and noop.numel() and scalar(noop) == 1:
            return
        used = scalar(scale)
        self.trace.append({"cast": source.data_ptr(), "scale": used})
        amax.detach().fill_(np.fmax(np.float32(scalar(amax)), np.float32(largest(source))).item())
        for payload in payloads:
            write_header(payload, (used, scalar(source), int(dtype)))
        if self.writes_scale_inv:
            scale_inv.detach().fill_((np.float32(1) / np.float32(used)).item())

    def cast_at(self, source, scale, history, scale_inv, index, dtype, payloads) -> None:
        """The same with the tensors of a module and an index; a scale_inv of its own has one element."""
        inverse = scale_inv.view(-1)[index if scale_inv.numel() > index else 0]
        amax = history[0][index] if history.dim() > 1 else history[index]
        self.cast(source, scale[index], amax, inverse, dtype, payloads)

    def cast_to_fp8_ts(self, source, scale, history, scale_inv, index, dtype):
        payload = self.payload(source.shape)
        self.cast_at(source, scale, history, scale_inv, int(index), dtype, [payload])
        return payload

    def cast_to_fp8_noalloc_ts(self, source, scale, out, history, scale_inv, index, dtype):
        self.cast_at(source, scale, history, scale_inv, int(index), dtype, [out])
        return out

    def cast_to_fp8(self, source, scale, amax, scale_inv, dtype):
        payload = self.payload(source.shape)
        self.cast(source, scale, amax, scale_inv, dtype, [payload])
        return payload

    def cast_to_fp8_noalloc(self, source, scale, out, amax, scale_inv, dtype) -> None:
        self.cast(source, scale, amax, scale_inv, dtype, [out])

    def fused_cast_transpose(self, source, scale, amax, scale_inv, out, transpose, dtype) -> None:
        self.cast(source, scale, amax, scale_inv, dtype, [out, transpose])

    def fused_cast_transpose_noop(
        self,
        source,
        noop,
        scale,
        amax,
        scale_inv,
        out,
        transpose,
        dtype,
        *,
        scale_offset=0,
        amax_offset=0,
        scale_inv_offset=0,
    ) -> None:
        self.cast(
            source,
            scale.view(-1)[scale_offset],
            amax.view(-1)[amax_offset],
            scale_inv.view(-1)[scale_inv_offset],
            dtype,
            [out, transpose],
            noop,
        )

    def payload(self, shape):
        import torch

        return torch.full(tuple(shape), 0xFF, dtype=torch.uint8)

    def fp8_transpose(self, payload, _dtype, out=None):
        if out is None:
            out = self.payload((payload.shape[-1], payload.numel() // payload.shape[-1]))
        write_header(out, header_of(payload))
        return out

    def fp8_transpose_noalloc(self, payload, out, _dtype) -> None:
        write_header(out, header_of(payload))

    def fp8_transpose_noalloc_noop(self, payload, out, noop, _dtype) -> None:
        if scalar(noop) != 1:
            write_header(out, header_of(payload))

    # --- quantizers of 2.x --------------------------------------------------------------------------------------------

    def create(self, quantizer, shape, dtype):
        """A tensor as the extension makes it for a Float8Quantizer on Hopper: columnwise data are a transpose."""
        shape = tuple(shape)
        fields = {
            "data": self.payload(shape) if quantizer.rowwise_usage else None,
            "fp8_scale_inv": 1 / quantizer.scale.detach().reshape(1),
            "fp8_dtype": quantizer.dtype,
            "data_transpose": self.payload((shape[-1], int(np.prod(shape[:-1]))))
            if quantizer.columnwise_usage
            else None,
            "quantizer": quantizer,
        }
        tensor, storage = self.release.float8_classes
        if not quantizer.internal:
            return tensor(shape=shape, dtype=dtype, **fields)
        if self.release.storage_has_fake_dtype:
            fields["fake_dtype"] = dtype
        return storage(**fields)

    def create_empty_quantized_tensor(self, quantizer, shape, dtype, *_device_and_pinning):
        return self.create(quantizer, shape, dtype)

    def quantize(self, source, quantizer, out=None, noop=None):
        if out is None:
            out = self.create(quantizer, source.shape, source.dtype)
        payloads = [payload for payload in (out._data, out._transpose) if payload is not None]
        self.cast(source, quantizer.scale, quantizer.amax, out._scale_inv, quantizer.dtype, payloads, noop)
        if out._transpose is not None:
            out._transpose_invalid = False
        return out

    # --- products -----------------------------------------------------------------------------------------------------

    def multiplied(self, *operands) -> None:
        self.trace.append({"gemm": operands})

    def te_gemm_ts(self, a, a_scale_inv, a_index, a_dtype, _ta, b, b_scale_inv, b_index, b_dtype, _tb, out, *_rest):
        import torch

        if a.dtype in (torch.uint8, torch.int8):
            self.multiplied(
                (*header_of(a), scalar(a_scale_inv, int(a_index)), int(a_dtype)),
                (*header_of(b), scalar(b_scale_inv, int(b_index)), int(b_dtype)),
            )
        out.detach().zero_()
        return out

    def te_gemm(self, a, a_scale_inv, a_dtype, ta, b, b_scale_inv, b_dtype, tb, out, *rest):
        """That of 0.1 to 0.5, which is given the elements themselves."""
        return self.te_gemm_ts(
            a, a_scale_inv.view(-1), 0, a_dtype, ta, b, b_scale_inv.view(-1), 0, b_dtype, tb, out, *rest
        )

    def generic_gemm(self, a, a_transposed, b, b_transposed, out, *_rest, **_overlap):
        import torch

        if hasattr(a, "_scale_inv"):
            self.multiplied(self.operand(a, rowwise=a_transposed), self.operand(b, rowwise=not b_transposed))
        if out is None:
            (a_rows, a_columns), (b_rows, b_columns) = sides(a), sides(b)
            out = torch.empty(
                b_columns if b_transposed else b_rows, a_rows if a_transposed else a_columns, dtype=torch.float32
            )
        out.detach().zero_()
        return out, None, None, None

    def operand(self, tensor, *, rowwise: bool):
        payload = tensor._data if rowwise else tensor._transpose
        if payload is None or (not rowwise and tensor._transpose_invalid):
            raise RuntimeError(
                f"the product reads a {'rowwise' if rowwise else 'columnwise'} payload that the tensor lacks"
            )
        return *header_of(payload), scalar(tensor._scale_inv), int(tensor._fp8_dtype)

    # --- updates ------------------------------------------------------------------------------------------------------

    def fused_amax_and_scale_update(
        self, history, scale, scale_inv, mask, new_history, new_scale, new_inverse, algo, dtype, margin
    ) -> None:
        masked = scale_inv.clone()
        self.update(new_history, new_scale, new_inverse, algo, dtype, margin, history[0].clone())
        if mask.numel():
            new_inverse.copy_(new_inverse.where(mask, masked))

    def fused_amax_and_scale_update_after_reduction(self, amaxes, histories, scales, *rest) -> None:
        *inverses, algo, dtype, margin = rest
        offset, length = 0, histories[0].shape[0]
        for i, (history, scale) in enumerate(zip(histories, scales, strict=True)):
            columns = history.shape[1]
            if history.numel() != length * columns:
                raise RuntimeError(f"Expected {length * columns} elements, but found {history.numel()}")
            if scale.numel() != columns:
                raise RuntimeError(f"Expected {columns} elements, Found {scale.numel()}")
            inverse = inverses[0][i] if inverses else scale.clone()
            self.update(history, scale, inverse, algo, dtype, margin, amaxes[offset : offset + columns])
            offset += columns

    def update(self, history, scale, inverse, algo: str, dtype, margin, amaxes) -> None:
        """Runs the kernel on each column."""
        scaled_max = np.float32(FP8_MAX[DType(int(dtype)).name]) * np.float32(2.0**-margin)
        for column in range(history.shape[1]):
            rows = history[:, column].numpy().copy()
            s, i = scale[column : column + 1].numpy().copy(), inverse[column : column + 1].numpy().copy()
            reduced = amaxes[column : column + 1].numpy().copy()
            self.update_kernel(reduced.ctypes.data, rows, s, i, len(rows), ALGORITHMS[algo], float(scaled_max))
            for tensor, values in (
                (history[:, column], rows),
                (scale[column : column + 1], s),
                (inverse[column : column + 1], i),
            ):
                tensor.copy_(tensor.new_tensor(values))


def enum_members(tag: tuple[int, ...]) -> dict:
    return {
        "DType": DType if tag < (2,) else PublicDType,
        "FP8FwdTensors": FP8FwdTensors,
        "FP8BwdTensors": FP8BwdTensors,
        "FP8TensorMeta": FP8TensorMeta,
    }


def functions(extension: Extension) -> dict:
    names = [
        "cast_to_fp8", "cast_to_fp8_noalloc", "fused_cast_transpose", "fused_cast_transpose_noop", "fp8_transpose",
        "fp8_transpose_noalloc", "fp8_transpose_noalloc_noop", "create_empty_quantized_tensor", "quantize",
        "te_gemm", "generic_gemm", "fused_amax_and_scale_update", "fused_amax_and_scale_update_after_reduction",
    ]  # fmt: skip
    answers = {
        "get_cublasLt_version": lambda: 130000,
        "get_num_cublas_streams": lambda: 4,
        "_num_cublas_streams": 4,
        "userbuf_comm_available": lambda: False,
        "ubuf_built_with_mpi": lambda: False,
        "device_supports_multicast": lambda *args: False,
    }
    return {name: getattr(extension, name) for name in names} | answers
