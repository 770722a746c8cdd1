# SPDX-License-Identifier: Apache-2.0
"""Calls with device="cuda" run on the CPU, and remember that their tensors are the GPU's.

A tensor that was made on the GPU, or moved there, is one of the CPU whose storage has a mark; so has one that was moved
back, and what PyTorch or the extension computes of either. A mark says which generator a draw takes its numbers from,
and that a copy to the other side is a copy. What has none, such as a gradient, counts as on the GPU for who sees one.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from fp8lab.te._draws import CudaGenerator, draw_normal, draw_uniform, warn_of_cpu_draw

__all__ = ["CudaToCpu", "bytes_on_gpu", "computed", "is_gpu", "is_on_cpu", "is_on_gpu", "placed", "under"]

_GPU = torch.device("cuda", 0)
_MARK = "_fp8lab_te_gpu"

_NOT_THE_GPUS = ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
_TORCHS_DROPOUTS = ("alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout", "native_dropout")
_OTHER_METHODS = (
    "bernoulli",
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "multinomial",
    "random_",
)
_OTHER_DRAWS = (
    "_sample_dirichlet",
    "_standard_gamma",
    "bernoulli",
    "binomial",
    "multinomial",
    "poisson",
    "randint_like",
)
_LAYERS_THAT_DROP = ("gru", "lstm", "rnn_relu", "rnn_tanh")
_FACTORIES = (
    "arange",
    "empty",
    "eye",
    "from_numpy",
    "full",
    "linspace",
    "ones",
    "randint",
    "randperm",
    "tensor",
    "zeros",
)
_OTHER_FACTORIES = ("randint", "randperm", "randint_like")


def is_on_gpu(tensor: Any) -> bool:
    """Whether a plain tensor was made on the emulated GPU."""
    return _mark(tensor) is True


def is_on_cpu(tensor: Any) -> bool:
    """Whether a plain tensor was moved to the CPU, or made there by name."""
    return _mark(tensor) is False


def _mark(tensor: Any) -> bool | None:
    """True for a plain tensor on the GPU, False for one that was moved to the CPU, None for what has no mark."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or torch.compiler.is_compiling():
        return None  # a compiler that reads this code knows nothing of marks
    return getattr(_storage(tensor), _MARK, None)


def _storage(tensor: Any) -> Any:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # of sparse and functional tensors
        return None


def _beside(result: Any, args: tuple[Any, ...]) -> Any:
    """What PyTorch computed of these arguments: on the GPU where one of them is, and on the CPU where all are that are
    tensors."""
    several = (result,) if type(result) is torch.Tensor else result if isinstance(result, (tuple, list)) else ()
    unmarked = [one for one in several if type(one) is torch.Tensor and _mark(one) is None]
    if unmarked:
        flat = [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        marks = [_mark(one) for one in flat if isinstance(one, torch.Tensor)]
        if any(marks) or (marks and all(mark is False for mark in marks)):
            for one in unmarked:
                _marked(one, any(marks))
    return result


def _marked(tensor: Any, on_gpu: bool = True) -> Any:
    if torch.compiler.is_compiling():
        return tensor
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided and not tensor.is_meta:
        storage = _storage(tensor)
        setattr(storage, _MARK, on_gpu)
        if on_gpu:
            _LIVING[id(storage)] = storage
    return tensor


def _blank(func: Any, result: Any) -> Any:
    """Bytes that nothing has written yet, as zeros: modules read codes and scales before they write them."""
    is_unwritten = func in (torch.empty, torch.empty_like) and type(result) is torch.Tensor
    return result.zero_() if is_unwritten and result.dtype is torch.uint8 and not result.is_meta else result


def placed(tensor: Any, device: Any) -> Any:
    """A tensor that the extension made on a device."""
    return _marked(tensor, is_gpu(device))


def computed(result: Any) -> Any:
    """What the extension computed: its tensors that have no mark are on the GPU."""
    for one in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(one, torch.Tensor) and _mark(one) is None:
            _marked(one)
    return result


_LIVING: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def bytes_on_gpu() -> int:
    """Of the storages that were made on the GPU, or moved there, and still live."""
    return sum(storage.nbytes() for storage in list(_LIVING.values()))


def _is_quantized(tensor: Any) -> bool:
    return type(tensor).__module__.startswith("transformer_engine.")


def _quantized_on(tensor: Any, to_gpu: bool) -> Any:
    """A quantized tensor on a side; Transformer Engine's own code copies its buffers where they are on the other."""
    buffers = [one for one in tensor.get_metadata().values() if isinstance(one, torch.Tensor)]
    if not buffers or is_on_cpu(buffers[0]) != to_gpu:
        return tensor
    return torch.ops.aten._to_copy.default(tensor, device=_GPU if to_gpu else torch.device("cpu"))


def is_gpu(device: Any) -> bool:
    """Whether an argument names the GPU."""
    if isinstance(device, torch.device):
        return bool(device.type == "cuda")
    return type(device) is int or (isinstance(device, str) and device.split(":")[0] == "cuda")


def _is_cpu(device: Any) -> bool:
    if isinstance(device, torch.device):
        return bool(device.type == "cpu")
    return isinstance(device, str) and device == "cpu"


class CudaToCpu(TorchFunctionMode):  # type: ignore[misc]  # its module has no types
    """The mode that stands over all calls of PyTorch's functions while a device is emulated."""

    def __init__(self, generator: CudaGenerator, is_seen_on_gpu: Callable[[int], bool], pretends: bool = False) -> None:
        super().__init__()
        self._pretends = pretends  # programs see the GPU, and so what is on the CPU by name
        self._generator = generator
        self._is_seen_on_gpu = is_seen_on_gpu  # by the code so many frames up
        self._handlers: dict[Any, Callable[[tuple[Any, ...], dict[str, Any]], Any]] = {
            torch.Tensor.device.__get__: self._device_of,
            torch.Tensor.get_device: self._index_of,
            torch.Tensor.to: self._to,
            torch.Tensor.cuda: self._cuda,
            torch.Tensor.cpu: self._cpu,
            torch.Tensor.type: self._type,
            torch.Tensor.pin_memory: lambda args, options: args[0],
            torch.Tensor.is_pinned: lambda args, options: False,
            torch.Tensor.record_stream: lambda args, options: None,
            torch.Tensor.uniform_: self._uniform,
            torch.Tensor.normal_: self._normal,
            torch.nn.init.uniform_: self._init_uniform,
            torch.nn.init.normal_: self._init_normal,
            torch.nn.init.kaiming_uniform_: self._init_kaiming_uniform,
            torch.normal: self._torch_normal,
            torch._C._nn._parse_to: _parsed_to,
            torch._scaled_mm: _scaled_mm,
            torch.bmm: _as_on_device("bmm"),
            torch.baddbmm: _as_on_device("baddbmm"),
            torch.Tensor.sum: _as_on_device("row_sum"),
        }
        for name in ("rand", "randn", "rand_like", "randn_like"):
            self._handlers[getattr(torch, name)] = self._drawn(name)
        for name in ("empty_like", "zeros_like", "ones_like", "full_like"):
            self._handlers[getattr(torch, name)] = self._like(getattr(torch, name))
        for name in ("clone", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"):
            self._handlers[getattr(torch.Tensor, name)] = self._like(getattr(torch.Tensor, name))
        self._warners = {getattr(torch, name): name for name in _OTHER_DRAWS}
        self._warners.update({getattr(torch.Tensor, name): name for name in _OTHER_METHODS})
        self._warners[torch.nn.functional.gumbel_softmax] = "gumbel_softmax"
        self._droppers = _droppers()
        self._factories = {getattr(torch, name) for name in _FACTORIES}
        self._constructors = _device_constructors()
        self.is_default = False  # torch.set_default_device() has named the GPU
        self._other_factories = {getattr(torch, name): name for name in _OTHER_FACTORIES}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if self.is_default and func in self._constructors and options.get("device") is None:
            options = {**options, "device": _GPU}
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(args, options)
        if func in self._warners:
            self._warn(self._warners[func], args, options)
        elif func in self._droppers:
            name, drops = self._droppers[func]
            if drops(args, options):
                warn_of_cpu_draw(name)
        if "device" in options or "pin_memory" in options:
            return self._made(func, args, options)
        result = func(*args, **options)
        if self._pretends and func in self._factories:
            return _marked(result, False)  # the default device is the CPU
        return _beside(result, args)

    # --- where tensors are --------------------------------------------------------------------------------------------

    def _made(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What a factory makes."""
        if isinstance(func, torch._ops.OpOverload) and args and _is_quantized(args[0]):
            return func(*args, **options)  # Transformer Engine's own code makes it, which sees the GPU
        on_gpu = is_gpu(options.get("device"))
        if on_gpu and func in self._other_factories:
            warn_of_cpu_draw(self._other_factories[func])
        result = _blank(func, func(*args, **_on_cpu(options)))
        return _marked(result, on_gpu) if on_gpu or _is_cpu(options.get("device")) else result

    def _device_of(self, args: tuple[Any, ...], _options: dict[str, Any]) -> Any:
        """Where a tensor is: who sees a GPU sees it there."""
        device = torch.Tensor.device.__get__(*args)
        is_hidden = device.type == "cpu" and not (self._pretends and _mark(args[0]) is False)
        return _GPU if is_hidden and self._is_seen_on_gpu(3) else device

    def _index_of(self, args: tuple[Any, ...], _options: dict[str, Any]) -> int:
        return 0 if self._is_seen_on_gpu(3) else int(torch.Tensor.get_device(*args))

    def _to(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        tensor = args[0]
        beside = next((one for one in (*args[1:2], options.get("tensor")) if isinstance(one, torch.Tensor)), None)
        mark = _mark(beside)
        where = options.get("device") if mark is None else _GPU if mark else torch.device("cpu")
        named = next((one for one in (*args[1:2], where) if is_gpu(one) or _is_cpu(one)), None)
        if _is_quantized(tensor):
            given = (*args[1:], *options.values(), getattr(beside, "dtype", None))
            types = [one for one in given if isinstance(one, torch.dtype)]
            if named is not None and all(one == tensor.dtype for one in types):
                return _quantized_on(tensor, is_gpu(named))
            on_cpu = tuple(torch.device("cpu") if is_gpu(one) else one for one in args[1:])
            return tensor.to(*on_cpu, **_on_cpu(options))
        args = tuple(torch.device("cpu") if i and is_gpu(one) else one for i, one in enumerate(args))
        result = tensor.to(*args[1:], **_on_cpu(options))
        return _beside(result, args) if named is None else _moved(tensor, result, is_gpu(named))

    def _cuda(self, args: tuple[Any, ...], _options: dict[str, Any]) -> Any:
        tensor = args[0]
        if _is_quantized(tensor):
            return _quantized_on(tensor, True)
        return _moved(tensor, tensor.to(torch.device("cpu")), True)

    def _cpu(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        tensor = args[0]
        if _is_quantized(tensor):
            return _quantized_on(tensor, False)
        return _moved(tensor, tensor.cpu(*args[1:], **options), False)

    def _type(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A tensor as another type, which may be one on the GPU; or the name of its own."""
        wanted = args[1] if len(args) > 1 else options.get("dtype")
        if wanted is None:
            on_gpu = self._device_of(args[:1], {}).type == "cuda"
            return args[0].type().replace("torch.", "torch.cuda.") if on_gpu else args[0].type()
        name = wanted if isinstance(wanted, str) else ".".join(getattr(wanted, f"__{one}__", "") for one in _NAME)
        if not name.startswith("torch.cuda."):
            return _beside(args[0].type(wanted), args)
        return self._cuda((args[0].to(getattr(torch, name.rsplit(".", 1)[1]).dtype),), {})

    def _like(self, func: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        def like(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            named = options.get("device")
            mark = _mark(args[0]) if named is None else is_gpu(named) or (False if _is_cpu(named) else None)
            result = _blank(func, func(*args, **_on_cpu(options)))
            return result if mark is None else _marked(result, mark)

        return like

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def _generator_of(self, tensor: Any, options: dict[str, Any]) -> CudaGenerator | None:
        """The generator of the GPU that a draw into this tensor takes its numbers from; None: it is PyTorch's."""
        given = options.get("generator")
        if isinstance(given, CudaGenerator):
            return given
        return self._generator if given is None and is_on_gpu(tensor) and tensor.is_contiguous() else None

    def _warn(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if args and is_on_gpu(args[0]) and not _is_cpu(options.get("device")):
            warn_of_cpu_draw(name)

    def _uniform(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return self._uniform_into(*args, **options)

    def _uniform_into(self, tensor: Any, low: float = 0.0, high: float = 1.0, **options: Any) -> Any:
        low, high = options.pop("from", low), options.pop("to", high)
        own = self._generator_of(tensor, options)
        if own is None or not draw_uniform(own, tensor, float(low), float(high)):
            tensor.uniform_(low, high, generator=options.get("generator"))
        return tensor

    def _normal(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return self._normal_into(*args, **options)

    def _normal_into(self, tensor: Any, mean: float = 0.0, std: float = 1.0, **options: Any) -> Any:
        own = self._generator_of(tensor, options)
        if own is None or not draw_normal(own, tensor, float(mean), float(std)):
            tensor.normal_(mean, std, generator=options.get("generator"))
        return tensor

    def _init_uniform(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        def init(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
            with torch.no_grad():
                return self._uniform_into(tensor, a, b, generator=generator)

        return init(*args, **options)

    def _init_normal(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        def init(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
            with torch.no_grad():
                return self._normal_into(tensor, mean, std, generator=generator)

        return init(*args, **options)

    def _init_kaiming_uniform(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """PyTorch's function; what it draws comes from the GPU's generator, between its own bounds."""

        def init(
            tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
        ) -> Any:
            if not is_on_gpu(tensor) or tensor.numel() == 0:
                return torch.nn.init.kaiming_uniform_(tensor, a, mode, nonlinearity, generator)
            fan = torch.nn.init._calculate_correct_fan(tensor, mode)
            bound = 3.0**0.5 * (torch.nn.init.calculate_gain(nonlinearity, a) / fan**0.5)
            return self._init_uniform((tensor, -bound, bound, generator), {})

        return init(*args, **options)

    def _drawn(self, name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """``rand`` and its like: a tensor on the GPU that is filled with the GPU's numbers."""
        func, fill = getattr(torch, name), draw_normal if name.startswith("randn") else draw_uniform

        def draw(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            named = options.get("device")
            on_gpu = is_gpu(named) if named is not None else name.endswith("_like") and is_on_gpu(args[0])
            given = options.get("generator")
            if not on_gpu:
                result = func(*args, **options)
                is_like = name.endswith("_like")
                is_default = named is None and (is_on_cpu(args[0]) if is_like else self._pretends)
                return _marked(result, False) if _is_cpu(named) or is_default else result
            empty = torch.empty_like if name.endswith("_like") else torch.empty
            rest = _on_cpu({**options, "requires_grad": False})
            result = _marked(empty(*args, **{key: value for key, value in rest.items() if key != "generator"}))
            if not fill(given if isinstance(given, CudaGenerator) else self._generator, result, *_BOUNDS):
                result.copy_(func(*args, **rest))
            return result.requires_grad_(bool(options.get("requires_grad", False)))

        return draw

    def _torch_normal(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if is_gpu(options.get("device")) and len(args) == 3:
            empty = _marked(torch.empty(args[2], **{k: v for k, v in _on_cpu(options).items() if k != "generator"}))
            return self._normal_into(empty, float(args[0]), float(args[1]), generator=options.get("generator"))
        if any(is_on_gpu(one) for one in args):
            warn_of_cpu_draw("torch.normal with tensors of means or deviations")
        return torch.normal(*args, **_on_cpu(options))


def _droppers() -> dict[Any, tuple[str, Callable[[tuple[Any, ...], dict[str, Any]], bool]]]:
    """The functions that drop elements by the way: the name, and whether a call with these arguments does."""

    def drops(probability: Any, training: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], bool]:
        """Of arguments that have a position, a name and a default."""

        def of(argument: tuple[int, str, Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            position, name, default = argument
            return args[position] if len(args) > position else options.get(name, default)

        return lambda args, options: bool(of(probability, args, options)) and bool(of(training, args, options))

    def layers_drop(args: tuple[Any, ...], _options: dict[str, Any]) -> bool:
        """Of several layers; rows that are packed have one argument more before the others."""
        layers, probability, training = args[4:7] if isinstance(args[3], bool) else args[5:8]
        return layers > 1 and bool(probability) and bool(training)

    functional, always = torch.nn.functional, (999, "", True)
    found: dict[Any, Any] = {
        functional.scaled_dot_product_attention: drops((4, "dropout_p", 0.0), always),
        functional.multi_head_attention_forward: drops((10, "dropout_p", 0.0), (13, "training", True)),
        functional.rrelu: drops(always, (3, "training", False)),
        torch.rrelu: drops(always, (3, "training", False)),
    }
    for name in _NOT_THE_GPUS:
        found[getattr(functional, name)] = drops((1, "p", 0.5), (2, "training", True))
    for name in _TORCHS_DROPOUTS:
        found[getattr(torch, name)] = drops((1, "p", 0.5), (2, "train", True))
    for name in _LAYERS_THAT_DROP:
        found[getattr(torch, name)] = layers_drop
    return {function: (function.__name__, is_drawn) for function, is_drawn in found.items()}


def _parsed_to(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What ``Module.to`` makes of its arguments: a number is a GPU's."""
    named = tuple(_GPU if type(one) is int else one for one in args)
    if type(options.get("device")) is int:
        options = {**options, "device": _GPU}
    return torch._C._nn._parse_to(*named, **options)


def _scaled_mm(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    from fp8lab.te.gemm import scaled_mm

    with torch.no_grad(), torch._C.DisableTorchFunction():
        return scaled_mm(*args, **options)


def _as_on_device(name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """The handler of torch_kernels of that name."""

    def handle(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        from fp8lab.te import torch_kernels

        result = getattr(torch_kernels, name)(args, options)
        return _beside(result, args)

    return handle


_NAME = ("module", "name")  # of a type
_BOUNDS = (0.0, 1.0)  # of a uniform draw, and mean and deviation of a normal one


def under(mode: CudaToCpu, function: Callable[..., Any]) -> Callable[..., Any]:
    """Code of others that PyTorch calls while it has the mode off, or in threads of its own: under the mode."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if mode in torch.overrides._get_current_function_mode_stack():
            return function(*args, **options)
        with mode:
            return function(*args, **options)

    return call


def _on_cpu(options: dict[str, Any]) -> dict[str, Any]:
    """The options without the GPU and without memory that is pinned for it."""
    changed = dict(options)
    if is_gpu(changed.get("device")):
        changed["device"] = torch.device("cpu")
    if changed.get("pin_memory"):
        changed["pin_memory"] = False
    return changed


def _moved(tensor: Any, result: Any, to_gpu: bool) -> Any:
    """A tensor that is on the other side: a copy of its own, where it was not there already."""
    if type(result) not in (torch.Tensor, torch.nn.Parameter):
        return result
    if _mark(tensor) is not to_gpu and _storage(result) is _storage(tensor):
        result = result.clone()
    return _marked(result, to_gpu)
