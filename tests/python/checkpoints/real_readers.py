# SPDX-License-Identifier: Apache-2.0
"""What the libraries themselves read of a quantized checkpoint, on a CPU: their own classes, called as they call them.

Each function takes a directory and gives the words of bfloat16 of each weight, by its name. ImportError where a package is
missing.
"""

import ast
import contextlib
import fnmatch
import functools
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import warnings

import numpy as np
import torch
from quantizers import installed

BLOCK = 128


def loaded(directory):
    import safetensors.torch

    return {
        name: x
        for file in sorted(directory.glob("*.safetensors"))
        for name, x in safetensors.torch.load_file(file).items()
    }


def save(file, tensors):
    """In place of a file, whose metadata stay."""
    import safetensors.torch

    with safetensors.safe_open(file, "pt") as content:
        metadata = content.metadata()
    safetensors.torch.save_file(tensors, file, metadata=metadata)


def words(x):
    return x.detach().to(torch.bfloat16).contiguous().view(torch.uint16).numpy()


class _StandIns:
    """Any module of a package that is not there, for the names that a reader imports and does not call."""

    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        if name.split(".", maxsplit=1)[0] == self.root:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return installed._Unused(spec.name)

    def exec_module(self, module):
        module.__path__ = []


#: The modules of compressed-tensors that were loaded so.
_loaded_apart = {}


@contextlib.contextmanager
def without_transformers():
    """compressed-tensors imports transformers for models that it changes, and here it changes none."""
    roots = ("compressed_tensors", "transformers")
    finder = _StandIns("transformers")
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in roots}
    sys.modules.update(_loaded_apart)
    sys.meta_path.insert(0, finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] in roots]:
            _loaded_apart[name] = sys.modules.pop(name)
        sys.modules.update(others)


def compressed_tensors(directory):
    """CompressedTensorsDequantizer, by the quantization_config that the checkpoint has."""
    installed.version("compressed-tensors")
    with without_transformers():
        from compressed_tensors.entrypoints.convert.converters import ct_dequantizer

        ct_dequantizer.CONFIG_NAME = "config.json"
        ct_dequantizer.get_checkpoint_files = lambda stub: {"config.json": str(directory / "config.json")}
        ct_dequantizer.get_quantization_config = lambda path: json.loads(pathlib.Path(path).read_text())[
            "quantization_config"
        ]
        tensors = loaded(directory)
        quantized = {name.removesuffix("_packed").removesuffix("_scale") for name in tensors if "weight_" in name}
        read = ct_dequantizer.CompressedTensorsDequantizer(str(directory)).validate(dict(tensors))
    return {name: words(x) for name, x in read.items() if name in quantized}


def modelopt(directory):
    """The QTensor classes, which ModelOpt's exporters and importers use."""
    from quantizers.packages import modelopt as of_package

    read = {}
    tensors = loaded(directory)
    for name, codes in tensors.items():
        stem = name.removesuffix("weight")
        scale = tensors.get(stem + "weight_scale")
        if not name.endswith(".weight") or scale is None:
            continue
        double_scale = tensors.get(stem + "weight_scale_2")
        packed = codes.dtype == torch.uint8
        shape = torch.Size([codes.shape[0], codes.shape[1] * (2 if packed else 1)])
        if double_scale is not None:
            how = {"scale": scale, "double_scale": double_scale, "block_sizes": {-1: 16}}
            kind = "nvfp4"
        elif scale.dtype == torch.uint8:
            kind = "mxfp4" if packed else "mxfp8"
            how = {"scale": scale, "block_sizes": {-1: 32}} if packed else {"scale": scale}
        elif scale.dim() == 4:
            kind = "fp8"
            how = {"scale": scale.squeeze(1).squeeze(-1), "block_sizes": {-1: BLOCK, -2: BLOCK}}
        else:
            kind, how = "fp8", {"scale": scale if scale.dim() == 0 else scale[:, None]}
        read[name] = words(of_package(kind)(shape, torch.bfloat16, codes).dequantize(**how))
    return read


def torchao(directory):
    """unflatten_tensor_state_dict, and dequantize of what it makes."""
    from quantizers.packages import _torchao
    from safetensors import safe_open

    support = _torchao("torchao.prototype.safetensors.safetensors_support")
    read = {}
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, "pt") as content:
            metadata = content.metadata()
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        made, left = support.unflatten_tensor_state_dict(tensors, metadata)
        assert not left, left
        read |= {name: words(x.dequantize(torch.bfloat16)) for name, x in made.items() if hasattr(x, "qdata")}
    return read


def quark(directory):
    """The kernels by which Quark's layers dequantize."""
    installed.version("amd-quark")
    from quantizers.packages import _QUARK_UNUSED

    tensors = loaded(directory)
    read = {}
    unused = tuple(name for name in _QUARK_UNUSED if not name.startswith("quark.torch.kernel"))
    for name, codes in tensors.items():
        scale = tensors.get(name.removesuffix("weight") + "weight_scale")
        if not name.endswith(".weight") or scale is None:
            continue
        if codes.dtype == torch.uint8:
            pack = installed.module("quark.torch.utils.pack", unused=unused)
            values = pack.create_pack_method("per_group", "fp4").unpack(codes, True).float()
            factor = torch.exp2(scale.float() - 127)[..., None]
            read[name] = words((values.reshape(codes.shape[0], -1, 32) * factor).reshape(codes.shape[0], -1))
        elif scale.dim() == 0:
            read[name] = words(_quark_kernel("dequantize_fp8_per_tensor_with_scale")(codes, scale))
        else:
            read[name] = words(_quark_kernel("dequantize_fp8_per_channel_with_scale")(codes, scale, 0))
    return read


@functools.cache
def _quark_kernel(name):
    """A function of the module of Quark's kernels, which as a whole compiles C++ when it is imported."""
    file = pathlib.Path(importlib.util.find_spec("quark").submodule_search_locations[0])
    file = file / "torch/kernel/hw_emulation/hw_emulation_interface.py"
    text = file.read_text()
    (found,) = (one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == name)
    names = {"torch": torch}
    exec(compile(ast.Module([found], []), str(file), "exec"), names)
    return names[name]


def transformers_weights(directory):
    """Fp8Dequantize of each weight, and convert_moe_packed_tensors of stacks."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    tensors = loaded(directory)
    read = {}
    dequantize = Fp8Dequantize(None)
    for name, codes in tensors.items():
        if name.endswith("_blocks"):
            stem = name.removesuffix("_blocks")
            read[stem] = words(convert_moe_packed_tensors(codes, tensors[stem + "_scales"]))
            continue
        scale = tensors.get(name + "_scale_inv", tensors.get(name.removesuffix("weight") + "scale"))
        if scale is not None:
            read[name] = words(dequantize._dequantize_one(codes, scale, torch.bfloat16))
    return read


def transformers_model(directory):
    """from_pretrained of the whole model, with its weights dequantized."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, quantization_config=_dequantizing(transformers, directory)
    )
    return {name: words(x) for name, x in model.state_dict().items()}


def _dequantizing(transformers, directory):
    config = json.loads((directory / "config.json").read_text())["quantization_config"]
    config.pop("quant_method")
    return transformers.FineGrainedFP8Config(**config, dequantize=True)


def gguf(path):
    """GGUFReader and dequantize: float32, of which bfloat16 holds every value here."""
    reader = installed.module("gguf.gguf_reader")
    quants = installed.module("gguf.quants")
    read = {}
    with installed.present("gguf"):
        for tensor in reader.GGUFReader(path).tensors:
            values = np.ascontiguousarray(quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
            assert (values.view(np.uint32) & 0xFFFF == 0).all()
            read[tensor.name] = (values.view(np.uint32) >> 16).astype(np.uint16)
    return read


def schemes_of_compressed_tensors(config, modules):
    """The strategy, bits and format by which compressed-tensors has each module, None of what it ignores."""
    installed.version("compressed-tensors")
    with without_transformers():
        from compressed_tensors.quantization import QuantizationConfig
        from compressed_tensors.utils.match import match_name

        read = QuantizationConfig.model_validate(config)
        schemes = {}
        for module in modules:
            found = [
                (scheme.weights.strategy, scheme.weights.num_bits, scheme.format)
                for scheme in read.config_groups.values()
                if any(target == "Linear" or match_name(module, target) for target in scheme.targets)
            ]
            assert len(found) < 2, (module, found)
            ignored = any(match_name(module, pattern) for pattern in read.ignore)
            schemes[module] = found[0] if found and not ignored else None
    return schemes


def algorithms_of_modelopt(hf_quant_config, modules):
    """The algorithm by which ModelOpt has each module, None of what it excludes.

    ModelOpt writes both of its configurations, and reads hf_quant_config.json where it makes the one of config.json of it.
    Servers match the excluded names as wildcards.
    """
    convert = installed.module("modelopt.torch.export.convert_hf_config").convert_hf_quant_config_format
    with warnings.catch_warnings():  # of algorithms for which it has no config_groups
        warnings.simplefilter("ignore")
        read = convert(hf_quant_config)
    layers = read.get("quantized_layers")
    if layers is not None:
        targets = {name for group in read["config_groups"].values() for name in group["targets"]}
        assert targets == set(layers)
    algorithms = {}
    for module in modules:
        excluded = any(fnmatch.fnmatch(module, pattern) for pattern in read["ignore"])
        algorithm = read["quant_algo"] if layers is None else layers.get(module, {}).get("quant_algo")
        algorithms[module] = None if excluded else algorithm
    return algorithms
