# SPDX-License-Identifier: Apache-2.0
"""fp8lab.gpu: what it says of the machine, where arrays lie, and kernels on the host team."""

import os
import pathlib
import re
import subprocess
import sys
import types

import fp8lab
import numpy as np
import pytest
from fp8lab import _device_arrays as arrays
from fp8lab import gpu

pytestmark = pytest.mark.sample(2)

ROOT = pathlib.Path(__file__).parents[2]
HEADERS = ROOT / "gpu" / "include" / "fp8lab" / "gpu"


def need_device(told: gpu.Status) -> None:
    """Skips a test where no CUDA device is, and fails it where FP8LAB_REQUIRE_GPU=1."""
    if told.count == 0 and os.environ.get("FP8LAB_REQUIRE_GPU") == "1":
        pytest.fail(f"FP8LAB_REQUIRE_GPU=1, and {told.why_none}")
    if told.count == 0:
        pytest.skip(told.why_none)


@pytest.fixture
def device():
    need_device(gpu.status())
    return gpu.devices()[0]


def test_without_a_device_tests_are_skipped_and_where_one_is_required_they_fail(monkeypatch):
    none = gpu.Status(0, "", "13.0", "90", "there is none")
    monkeypatch.delenv("FP8LAB_REQUIRE_GPU", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is none"):
        need_device(none)
    monkeypatch.setenv("FP8LAB_REQUIRE_GPU", "1")
    with pytest.raises(pytest.fail.Exception, match="FP8LAB_REQUIRE_GPU=1, and there is none"):
        need_device(none)


# 1. The machine and the kernels.


def test_a_machine_says_what_devices_it_has_or_why_none():
    told = gpu.status()
    assert gpu.device_count() == told.count == len(gpu.devices())
    assert (told.why_none == "") == (told.count > 0)
    if not told.cuda:
        assert "built without CUDA" in told.why_none and "-C cmake.define.FP8LAB_CUDA=ON" in told.why_none


def test_devices_are_described(device):
    assert device.name and device.capability >= (7, 0) and device.memory > 2**30 and device.processors > 0


def functors(path: pathlib.Path) -> list[str]:
    """The kernels of a header: structs that tell how many threads their teams have."""
    text = path.read_text()
    ends = [found.start() for found in re.finditer(r"^  static constexpr unsigned threads\b", text, re.MULTILINE)]
    return [re.findall(r"^struct (\w+) \{", text[:end], re.MULTILINE)[-1] for end in ends]


def test_the_list_of_kernels_is_that_of_the_sources():
    found = {name: str(path.relative_to(HEADERS)) for path in sorted(HEADERS.rglob("*.hpp")) for name in functors(path)}
    assert len(found) > 1
    assert {kernel.name: kernel.header for kernel in gpu.kernels()} == found


# 2. Where arrays lie: fake ones, whose addresses nobody reads.


class OnDevice:
    """An array on a device by the CUDA Array Interface."""

    def __init__(self, shape, typestr="<f4", **told):
        own = {"shape": shape, "typestr": typestr, "data": (4096, False), "version": 3, "strides": None, "stream": 7}
        self.__cuda_array_interface__ = {**own, **told}


class ByDlpack:
    """An array that says so of itself by DLPack; its capsule is that of an array of NumPy."""

    def __init__(self, array, device=2):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None):
        assert stream == 1  # the default stream, on which kernels run
        return self.array.__dlpack__()


class FakeTensor:
    """A tensor of torch on a device."""

    is_cuda, layout, dtype, device = True, "strided", "torch.bfloat16", "cuda:0"

    def __init__(self, shape, contiguous=True):
        self.shape, self.contiguous = shape, contiguous

    def data_ptr(self):
        return 8192

    def is_contiguous(self):
        return self.contiguous


@pytest.fixture
def fake_torch(monkeypatch):
    def current_stream(of):
        assert of == "cuda:0"
        return types.SimpleNamespace(cuda_stream=99)

    def empty(shape, dtype, device):
        tensor = FakeTensor(shape)
        tensor.dtype, tensor.device = dtype, device
        return tensor

    module = types.SimpleNamespace(
        Tensor=FakeTensor,
        strided="strided",
        cuda=types.SimpleNamespace(current_stream=current_stream),
        empty=empty,
        uint8="torch.uint8",
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_arrays_on_a_device_tell_where_they_lie(fake_torch):
    one = arrays.input_buffer(OnDevice((3, 4), data=(4096, True)), "x")
    assert (one.address, one.shape, one.dtype, one.on_device, one.stream, one.size) == (
        4096,
        (3, 4),
        "float32",
        True,
        7,
        12,
    )
    assert arrays.input_buffer(OnDevice((3,), "<V2", stream=None), "x").dtype == "bfloat16"
    assert arrays.input_buffer(OnDevice((3, 4), strides=(16, 4)), "x").place == ("x", 4096, 48, 4)
    assert arrays.input_buffer(OnDevice((0, 4), strides=(1, 1)), "x").size == 0
    tensor = arrays.input_buffer(FakeTensor((2, 5)), "x")
    assert (tensor.address, tensor.dtype, tensor.stream, tensor.library, tensor.size) == (
        8192,
        "bfloat16",
        99,
        "torch",
        10,
    )
    host = np.ones((2, 3), np.float16)
    by_dlpack = arrays.input_buffer(ByDlpack(host), "x")
    assert (by_dlpack.address, by_dlpack.shape, by_dlpack.dtype, by_dlpack.on_device) == (
        host.ctypes.data,
        (2, 3),
        "float16",
        True,
    )
    assert not arrays.input_buffer(host, "x").on_device
    assert not arrays.input_buffer(ByDlpack(host, device=1).array, "x").on_device


def test_element_types_of_dlpack_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for name in ("float32", "float16", "bfloat16", "uint8", "float8_e4m3fn", "float8_e5m2"):
        try:
            found = arrays.input_buffer(ByDlpack(_Dlpack(torch.zeros(3, dtype=getattr(torch, name)))), "x")
        except (RuntimeError, BufferError):  # a torch whose DLPack has no such type
            continue
        assert found.dtype == name


class _Dlpack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self):
        return self.tensor.__dlpack__()


REFUSED = {
    "not contiguous": (lambda: OnDevice((3, 4), strides=(4, 12)), ValueError, "x must be C-contiguous"),
    "every second": (lambda: OnDevice((3,), strides=(8,)), ValueError, "x must be C-contiguous"),
    "half an element apart": (lambda: OnDevice((3,), strides=(2,)), ValueError, "x must be C-contiguous"),
    "complex": (lambda: OnDevice((3,), "<c8"), TypeError, "x must be an array of .*, not <c8"),
    "big-endian": (lambda: OnDevice((3,), ">f4"), TypeError, "x must be an array of .*, not >f4"),
    "stream 0": (lambda: OnDevice((3,), stream=0), ValueError, "x tells stream 0"),
    "masked": (lambda: OnDevice((3,), mask=OnDevice((3,))), TypeError, "x must not be masked"),
    "no data": (lambda: OnDevice((3,), data=None), TypeError, "x has a __cuda_array_interface__ without"),
    "transposed of DLPack": (lambda: ByDlpack(np.ones((2, 3), np.float32).T), ValueError, "x must be C-contiguous"),
    "integers of DLPack": (
        lambda: ByDlpack(np.ones(3, np.int64)),
        TypeError,
        "x must be an array of .*, not int64",
    ),
    "a producer that fails": (lambda: ByDlpack(None), TypeError, "x does not tell where it lies"),
}


@pytest.mark.parametrize("made, kind, message", REFUSED.values(), ids=REFUSED)
def test_arrays_that_a_kernel_cannot_read_are_refused(made, kind, message):
    with pytest.raises(kind, match=message):
        arrays.input_buffer(made(), "x")


def test_tensors_of_torch_that_a_kernel_cannot_read_are_refused(fake_torch):
    with pytest.raises(ValueError, match="x must be C-contiguous"):
        arrays.input_buffer(FakeTensor((2, 2), contiguous=False), "x")


def test_results_are_arrays_of_the_same_library(fake_torch):
    x = arrays.input_buffer(FakeTensor((2, 4)), "x")
    made = arrays.output_buffer(None, x, (2, 4), ("uint8",), "codes")
    assert isinstance(made.owner, FakeTensor) and (made.dtype, made.shape, made.owner.device) == (
        "uint8",
        (2, 4),
        "cuda:0",
    )
    own = OnDevice((2, 4), "|u1")
    assert arrays.output_buffer(own, x, (2, 4), ("uint8",), "codes").owner is own
    with pytest.raises(TypeError, match="codes must be given: fp8lab does not know how test_gpu makes arrays"):
        arrays.output_buffer(None, arrays.input_buffer(OnDevice((2, 4)), "x"), (2, 4), ("uint8",), "codes")


WRONG_OUTPUTS = {
    "on the host": (lambda: np.zeros((2, 4), np.uint8), TypeError, "codes must lie on the device as x does"),
    "read-only": (lambda: OnDevice((2, 4), "|u1", data=(4096, True)), ValueError, "codes must be writable"),
    "other elements": (lambda: OnDevice((2, 4), "<f4"), TypeError, "codes must be uint8, not float32"),
    "another shape": (lambda: OnDevice((4, 2), "|u1"), ValueError, r"codes must have shape \(2, 4\), not \(4, 2\)"),
    "not contiguous": (lambda: OnDevice((2, 4), "|u1", strides=(1, 2)), ValueError, "codes must be C-contiguous"),
    "by DLPack": (lambda: ByDlpack(np.zeros((2, 4), np.uint8)), ValueError, "codes must be a torch tensor or have"),
}


@pytest.mark.parametrize("made, kind, message", WRONG_OUTPUTS.values(), ids=WRONG_OUTPUTS)
def test_outputs_that_a_kernel_cannot_write_are_refused(made, kind, message):
    x = arrays.input_buffer(OnDevice((2, 4)), "x")
    with pytest.raises(kind, match=message):
        arrays.output_buffer(made(), x, (2, 4), ("uint8",), "codes")


def test_outputs_on_the_host_are_checked_as_elsewhere():
    x = arrays.input_buffer(np.ones((2, 4), np.float32), "x")
    read_only = np.zeros((2, 4), np.uint8)
    read_only.flags.writeable = False
    for out, kind, message in [
        (OnDevice((2, 4), "|u1"), TypeError, "out must lie on the host"),
        ([1], TypeError, "out must be a NumPy array, not list"),
        (read_only, ValueError, "out must be C-contiguous, aligned and writable"),
    ]:
        with pytest.raises(kind, match=message):
            arrays.output_buffer(out, x, (2, 4), ("uint8",), "out")


def test_the_stream_is_the_one_given_or_the_arrays_own():
    x, y = arrays.input_buffer(OnDevice((1,), stream=None), "x"), arrays.input_buffer(OnDevice((1,), stream=5), "y")
    assert arrays.stream_of(None, [x]) == 0
    assert arrays.stream_of(None, [x, y]) == 5
    assert arrays.stream_of(12, [x, y]) == 12
    assert arrays.stream_of(types.SimpleNamespace(cuda_stream=3), [y]) == 3
    assert arrays.stream_of(types.SimpleNamespace(ptr=4), [y]) == 4
    for wrong in (True, -1, "0", object()):
        with pytest.raises(TypeError, match="stream must be a handle"):
            arrays.stream_of(wrong, [y])


def test_nothing_of_torch_is_needed():
    code = "import sys; sys.modules['torch'] = None; import fp8lab; print(fp8lab.gpu.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# 3. Kernels on the host team: the bits of the functions that they stand for, in every order.

ORDERS = [
    {},
    {"order": "descending"},
    {"order": "shuffled", "seed": 5},
    {"order": "shuffled", "seed": 6, "threads": 3},
]
_RNG = np.random.default_rng(20261123)


def matrix(rows: int, columns: int, dtype: str = "float32") -> np.ndarray:
    """Draws of many magnitudes, with zeros of both signs, subnormals, an infinity and a NaN."""
    x = np.ldexp(_RNG.standard_normal((rows, columns)).astype(np.float32), _RNG.integers(-12, 6, (rows, columns)))
    x[0, :4] = 0.0, -0.0, 1e-40, -1e-41
    x[rows // 2, columns // 2], x[-1, -1] = np.nan, -np.inf
    if dtype == "bfloat16":
        return x.astype(pytest.importorskip("ml_dtypes").bfloat16)
    return x.astype(dtype)


X = matrix(128, 256)


@pytest.mark.parametrize("recipe", gpu.recipes())
def test_a_kernel_gives_the_bits_of_quantize_and_dequantize(recipe):
    given = next(one for one in fp8lab.recipes() if one.name == recipe)
    for direction, options in zip(("rowwise", "columnwise"), ORDERS[2:]):
        expected = fp8lab.quantize(X, given, direction=direction)
        made = gpu.quantize(X, recipe, direction=direction, **options)
        assert made.to_host() == expected
        assert gpu.dequantize(made, **options).tobytes() == fp8lab.dequantize(expected).tobytes()


@pytest.mark.parametrize("options", ORDERS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_no_order_of_threads_changes_a_bit(dtype, options):
    x = matrix(32, 96, dtype)
    for recipe in ("te_mxfp8", "te_current_scaling", "te_block_1x128", "te_nvfp4"):
        rowwise, columnwise = gpu.quantize_both(x, recipe, **options)
        assert (rowwise.to_host(), columnwise.to_host()) == fp8lab.quantize_both(x, recipe)


def test_swizzled_scales_are_those_of_swizzle_scales():
    for direction in ("rowwise", "columnwise"):
        expected = fp8lab.quantize(X, "te_mxfp8", direction=direction)
        made = gpu.quantize(X, "te_mxfp8", direction=direction, layout="swizzled")
        assert np.array_equal(made.scale_codes, expected.scales("swizzled"))
        assert made.to_host() == expected
        assert gpu.dequantize(made).tobytes() == fp8lab.dequantize(expected).tobytes()


def test_a_cast_by_a_given_scale_takes_the_amax_in_the_same_pass():
    x = np.nan_to_num(X, posinf=3, neginf=-3)
    for scale in (0.375, np.float32([0.375])):
        made = gpu.cast(x, "e5m2", scale=scale, order="shuffled", seed=1)
        assert np.array_equal(made.codes, fp8lab.encode(x * np.float32(0.375), "e5m2"))
        assert made.amax == np.abs(x).max() and made.scale_inv == np.float32(1) / np.float32(0.375)


def test_a_cast_in_both_directions_has_the_transpose_and_the_amax_in_the_same_pass():
    x = np.nan_to_num(X, posinf=3, neginf=-3)
    codes = fp8lab.encode(x * np.float32(0.375), "e4m3")
    for scale in (0.375, np.float32([0.375])):
        rowwise, columnwise = gpu.cast_both(x, "e4m3", scale=scale, order="shuffled", seed=1)
        assert np.array_equal(rowwise.codes, codes) and np.array_equal(columnwise.codes, codes.T)
        for made in (rowwise, columnwise):
            assert made.amax == np.abs(x).max() and made.scale_inv == np.float32(1) / np.float32(0.375)
    with pytest.raises(TypeError, match="out must be a tuple of two QuantizedArrays"):
        gpu.cast_both(x, "e4m3", out=rowwise)


def test_amaxes_drop_or_count_nan():
    x = matrix(3, 5)
    assert gpu.amax(x) == np.inf and np.isnan(gpu.amax(x, nan="counted")[0])
    finite = np.float32([[[1, -7]], [[3, np.nan]]])
    assert gpu.amax(finite) == 7 and gpu.amax(finite.astype(np.float16), order="descending") == 7
    out = np.float32([100])
    assert gpu.amax(finite, out=out) is out and out == 7


@pytest.mark.parametrize("version", ["te_1_6", "te_1_7", "te_current"])
def test_scales_of_many_tensors_are_updated_in_place(version):
    recipe = fp8lab.Delayed(amax_history_len=4, version=version)
    histories = [fp8lab.AmaxHistory(recipe) for _ in range(5)]
    amaxes = np.zeros((4, 5), np.float32)
    scale, scale_inv = np.ones(5, np.float32), np.ones(5, np.float32)
    for step in range(7):
        for i, history in enumerate(histories):
            history.record_amax(float(np.float32(0.3 * i * (step % 3 + 1))))
        amaxes[0] = [0.3 * i * (step % 3 + 1) for i in range(5)]
        scale_inv[:] = [history.scale_inv for history in histories]
        gpu.update_scales(recipe, amaxes, scale, scale_inv, order="shuffled", seed=step)
        for i, history in enumerate(histories):
            history.update_scale()
            assert (scale[i], scale_inv[i]) == (history.scale, history.scale_inv)
            assert np.array_equal(amaxes[:, i], history.amaxes)


def test_the_inverse_of_a_scale_is_the_casts_since_transformer_engine_1_11():
    def inverse_after(version, *given):
        scale = np.ones(1, np.float32)
        gpu.update_scales(fp8lab.Delayed(amax_history_len=1, version=version), np.float32([[3]]), scale, *given)
        assert scale[0] == np.float32(448) / np.float32(3)
        return given[0][0] if given else None

    one = np.ones(1, np.float32)
    assert inverse_after("te_current", one) == 1 and inverse_after("te_current") is None
    assert inverse_after("te_1_7", one) == np.float32(1) / (np.float32(448) / np.float32(3))
    with pytest.raises(ValueError, match="scale_inv must be given: the update of te_1_7 writes it"):
        inverse_after("te_1_7")
    with pytest.raises(ValueError, match="versions of delayed scaling are te_1_6, te_1_7, te_current, not te_1_4"):
        inverse_after("te_1_4", one)


def test_stochastic_rounding_takes_the_words_of_philox():
    recipe = fp8lab.NvFp4(stochastic_rounding=True)
    x = np.nan_to_num(matrix(32, 64), posinf=3, neginf=-3)
    words = np.uint32([fp8lab.philox4x32([3, 0, g, 0], [11, 0]) for g in range(x.size // 16)])
    bits = (
        words.reshape(-1, 1).view(np.uint8)[:, [0, 2, 1, 3]].reshape(-1)
    )  # the bytes that cvt.rs takes for four neighbours
    made = gpu.quantize(x, recipe, philox_seed=11, philox_offset=3)
    assert made.to_host() == fp8lab.quantize(x, recipe, random_bits=bits)
    with pytest.raises(ValueError, match="random"):
        gpu.quantize(x, recipe)
    with pytest.raises(ValueError, match="philox_offset goes with philox_seed"):
        gpu.quantize(x, recipe, philox_offset=3)


def test_results_go_to_arrays_of_the_caller():
    first = gpu.quantize(X, "te_mxfp8")
    second = gpu.quantize(X * np.float32(3), "te_mxfp8", out=first)
    assert second.codes is first.codes and second.to_host() == fp8lab.quantize(X * np.float32(3), "te_mxfp8")
    out = np.empty(X.shape, np.float32)
    assert gpu.dequantize(second, out=out) is out


def changed(q: gpu.QuantizedArrays, **fields: object) -> gpu.QuantizedArrays:
    return gpu.QuantizedArrays(**{**vars(q), **fields})


def test_wrong_calls_are_refused_by_name():
    q = gpu.quantize(X, "te_mxfp8")
    read_only = q.codes.copy()
    read_only.flags.writeable = False
    wrong = [
        (lambda: gpu.quantize(X.astype(np.float64), "te_mxfp8"), TypeError, "x must be float32, float16 or bfloat16"),
        (lambda: gpu.quantize(X[0], "te_mxfp8"), ValueError, "x must have two dimensions"),
        (lambda: gpu.quantize(X[:0], "te_mxfp8"), ValueError, "x must not be empty: it is 0 x 256"),
        (lambda: gpu.quantize(X, "no_such"), ValueError, "recipe"),
        (lambda: gpu.quantize(X, "te_mxfp8", direction="both"), ValueError, "direction"),
        (lambda: gpu.quantize(X, "te_current_scaling", layout="swizzled"), ValueError, "layout must be compact"),
        (lambda: gpu.quantize(X, "te_mxfp8", order="random"), ValueError, "order"),
        (lambda: gpu.quantize(X, "te_mxfp8", stream=3), ValueError, "stream goes with arrays on a device"),
        (
            lambda: gpu.quantize(OnDevice((32, 32)), "te_mxfp8", threads=3),
            ValueError,
            "threads goes with arrays on the host",
        ),
        (lambda: gpu.quantize(X, "te_mxfp8", out=q.codes), TypeError, "out must be a QuantizedArrays"),
        (
            lambda: gpu.quantize(X, "te_mxfp8", out=changed(q, codes=read_only)),
            ValueError,
            "out.codes must be C-contiguous",
        ),
        (lambda: gpu.quantize(X, "te_mxfp8", out=changed(q, codes=None)), ValueError, "out.codes must be there"),
        (lambda: gpu.quantize(X, "te_block_1x128", out=q), ValueError, "out.scale_inv must be there"),
        (lambda: gpu.quantize(X[:32], "te_mxfp8", out=q), ValueError, r"out.codes must have shape \(32, 256\)"),
        (
            lambda: gpu.quantize(X, "te_mxfp8", out=changed(q, codes=X.view(np.uint8)[:, :256])),
            ValueError,
            "out.codes must be",
        ),
        (lambda: gpu.quantize_both(X, "te_mxfp8", out=q), TypeError, "out must be a tuple of two"),
        (lambda: gpu.cast(X, "e4m3", scale=np.float32([1, 2])), ValueError, "scale must be a number, or one float32"),
        (lambda: gpu.cast(X, "e2m1"), ValueError, "format must be e4m3 or e5m2, not e2m1"),
        (lambda: gpu.amax(X, nan="kept"), ValueError, "nan"),
        (lambda: gpu.amax(X, out=X[0, :1]), ValueError, "out must not overlap x"),
        (lambda: gpu.dequantize(X), TypeError, "q must be a QuantizedArrays or a Quantized"),
        (lambda: gpu.dequantize(q, out=np.empty((1, 2), np.float32)), ValueError, "out must have shape"),
        (lambda: gpu.update_scales(fp8lab.Delayed(), X, X[0], X[1]), ValueError, "amaxes must have as many rows"),
        (lambda: gpu.quantize(X, "te_mxfp8", philox_seed=1), ValueError, "philox_seed goes with recipes that round"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind, match=message):
            call()


def test_arrays_on_a_device_need_one():
    x, scales = OnDevice((32, 64)), OnDevice((32, 2), "|u1")
    out = gpu.QuantizedArrays(
        fp8lab.MxBlock(), "rowwise", (32, 64), OnDevice((32, 64), "|u1", data=(1 << 20, False)), None, scales
    )
    told = gpu.status()
    with pytest.raises(RuntimeError if told.count == 0 else ValueError) as error:
        gpu.quantize(x, "te_mxfp8", out=out)
    assert str(error.value) == told.why_none if told.count == 0 else "x must lie in device memory" in str(error.value)


# 4. Kernels on a device.


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_device_gives_the_bits_of_quantize_on_tensors_of_torch(device, dtype):
    torch = pytest.importorskip("torch")
    host = torch.from_numpy(X).to(getattr(torch, dtype))
    x = host.cuda()
    for recipe in gpu.recipes():
        with torch.cuda.stream(torch.cuda.Stream()):
            made = gpu.quantize(x, recipe)
            back = gpu.dequantize(made)
        assert made.codes.is_cuda and made.to_host() == fp8lab.quantize(host, recipe)
        assert back.cpu().numpy().tobytes() == fp8lab.dequantize(made.to_host()).tobytes()


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
@pytest.mark.parametrize(
    ("kernel", "chip", "model", "promote_k"),
    [
        ("wgmma_fast", "hopper", "hopper_wgmma_fp8", None),
        ("wgmma_promoted", "hopper", "hopper_wgmma_fp8", 128),
        ("wgmma_promoted", "hopper", "hopper_wgmma_fp8", 32),
        ("mma_sync", "ada", "ada_mma_fp8", None),
        ("mma_sync", "hopper", "hopper_mma_sync_fp8", None),
    ],
)
def test_gemm_kernels_have_the_bits_of_gemm(kernel, chip, model, promote_k, order):
    interval = {} if promote_k is None else {"promote_k": promote_k}
    rng = np.random.default_rng(5)
    a, b = (fp8lab.encode(rng.normal(size=(rows, 272)).astype(np.float32), "e4m3") for rows in (70, 40))
    bias = rng.normal(size=40).astype(np.float32)
    got = gpu.gemm(
        a, b, kernel=kernel, chip=chip, scale_a=0.3, scale_b=1.7, bias=bias, order=order, seed=3 if order == "shuffled" else None, **interval
    )  # fmt: skip
    expected = fp8lab.gemm(a, b, model=model, scale_a=0.3, scale_b=1.7, bias=bias, promote_k=promote_k)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
    if kernel == "mma_sync":
        out = np.empty((70, 40), np.float16)
        assert gpu.gemm(a, b, kernel=kernel, chip=chip, out_dtype="float16", out=out) is out
        expected = fp8lab.gemm(a, b, model=model, out_dtype="float16", promote_k=None)
        np.testing.assert_array_equal(out.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize(
    ("kernel", "recipe", "chip", "model"),
    [
        ("blackwell_f8f6f4", "te_current_scaling", None, "blackwell_tcgen05_fp8"),
        ("blackwell_mxf8f6f4", "te_mxfp8", "blackwell", "blackwell_mxf8"),
        ("blackwell_mxf8f6f4", "te_mxfp8", "rtx_blackwell", "blackwell_mxf8"),
        ("blackwell_mxf4nvf4", "te_nvfp4", None, "blackwell_nvf4"),
        ("blackwell_mxf4nvf4", "torchao_nvfp4", "rtx_blackwell", "blackwell_nvf4"),
        ("wgmma_scaled_1d1d", "te_block_1x128", None, "hopper_wgmma_fp8"),
    ],
)
def test_gemm_kernels_take_what_was_quantized(kernel, recipe, chip, model):
    rng = np.random.default_rng(6)
    left, right = (fp8lab.quantize(rng.normal(size=(rows, 288)).astype(np.float32), recipe) for rows in (70, 40))
    expected = fp8lab.gemm(left, right, model=model)
    np.testing.assert_array_equal(
        gpu.gemm(left, right, kernel=kernel, chip=chip).view(np.uint32), expected.view(np.uint32)
    )


@pytest.mark.parametrize("layout", ["compact", "swizzled"])
def test_gemm_kernels_take_arrays_that_kernels_quantized(layout):
    rng = np.random.default_rng(7)
    x, w = (rng.normal(size=(rows, 256)).astype(np.float32) for rows in (64, 128))
    left, right = (gpu.quantize(one, "te_nvfp4", layout=layout) for one in (x, w))
    expected = fp8lab.gemm(
        *(fp8lab.quantize(one, "te_nvfp4") for one in (x, w)), model="blackwell_nvf4", out_dtype="bfloat16"
    )
    got = gpu.gemm(left, right, kernel="blackwell_mxf4nvf4", out_dtype="bfloat16")
    np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))
    grad = gpu.quantize(x, "te_nvfp4", direction="columnwise", layout=layout)  # transposed: (256, 64)
    expected = fp8lab.gemm(*[fp8lab.quantize(x, "te_nvfp4", direction="columnwise")] * 2, model="blackwell_nvf4")
    np.testing.assert_array_equal(
        gpu.gemm(grad, grad, kernel="blackwell_mxf4nvf4").view(np.uint32), expected.view(np.uint32)
    )


MX = fp8lab.quantize(np.ones((32, 64), np.float32), "te_mxfp8")
FOUR = np.ones((4, 1), np.float32)


def on_device(scale_type):
    """What a device has quantized; its block scales are of a type."""
    scales = OnDevice((32, 2), scale_type or "|u1")
    return gpu.QuantizedArrays(fp8lab.MxBlock(), "rowwise", (32, 64), OnDevice((32, 64), "|u1"), None, scales)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"a": MX}, "both be codes, or both"),
        ({"a": MX, "b": MX}, "mma_sync does not take a: it has block scales"),
        ({"a": MX, "b": MX, "scale_a": 2.0}, "scale_a"),
        ({"kernel": "blackwell_mxf8f6f4"}, "a must be a Quantized or QuantizedArrays for blackwell_mxf8f6f4"),
        ({"a": MX, "b": MX, "kernel": "blackwell_mxf4nvf4"}, "its format is not e2m1"),
        ({"a": MX, "b": MX, "kernel": "blackwell_mxf8f6f4", "chip": "hopper"}, "is for blackwell and rtx_blackwell"),
        ({"kernel": "wgmma"}, "wgmma_fast"),
        ({"a": np.zeros((4, 15), np.uint8), "b": np.zeros((4, 15), np.uint8)}, "multiple of 16"),
        ({"b": np.zeros((4, 32), np.uint8)}, "as many columns as a"),
        ({"a": np.zeros((4, 16), np.float32)}, "a must be uint8"),
        ({"promote_k": 128}, "wgmma_promoted"),
        ({"kernel": "wgmma_promoted", "promote_k": 48}, "promote_k must be a positive multiple of 32, not 48"),
        ({"scale_a": np.ones(3, np.float32)}, "scale_a"),
        ({"kernel": "wgmma_scaled_1d1d"}, "^scale_a must be given: wgmma_scaled_1d1d reads one for each tile"),
        (
            {"kernel": "wgmma_scaled_1d1d", "scale_a": FOUR.T},
            r"^scale_a must have shape \(4, 1\), one for 1 x 128 codes of a, not \(1, 4\)",
        ),
        (
            {"kernel": "wgmma_scaled_1d2d", "scale_a": FOUR, "scale_b": FOUR},
            r"^scale_b must have shape \(1, 1\), one for 128 x 128 codes of b",
        ),
        ({"a": on_device(None), "b": on_device(None)}, "^mma_sync does not take a: it has block scales"),
        ({"a": on_device("<f4"), "b": on_device("<f4")}, "^a.scale_codes must be uint8"),
        (
            {"a": on_device(None), "b": on_device(None), "kernel": "wgmma_scaled_1d1d"},
            "^wgmma_scaled_1d1d does not take a: it has no float32",
        ),
        ({"chip": "volta"}, "chip"),
        ({"chip": "ampere"}, "sm_89"),
    ],
)
def test_gemm_kernels_refuse(changed, words):
    right = {"a": np.zeros((4, 16), np.uint8), "b": np.zeros((4, 16), np.uint8), "kernel": "mma_sync"}
    with pytest.raises((TypeError, ValueError), match=words):
        gpu.gemm(**(right | changed))
