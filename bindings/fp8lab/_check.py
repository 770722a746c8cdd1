# SPDX-License-Identifier: Apache-2.0
"""What FP8 and FP4 would make of the weights of a model: files, arrays, or a module of PyTorch."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fp8lab import _core
from fp8lab._arrays import check_bool, check_list, check_name, kind_of
from fp8lab._core import MmaModel
from fp8lab._document import Document
from fp8lab._entry import guard as _guard
from fp8lab._experiments import run
from fp8lab._recipes import NamedRecipe, Recipe

__all__ = [
    "check",
]

#: What torch.save writes.
_PICKLED = (".pt", ".pth", ".bin")


#: What C++ reads: a folder with one of these is read there.
_READ = (".safetensors", ".npy", ".gguf", ".npz")


def _is_path(model: Any) -> bool:
    return isinstance(model, (str, os.PathLike))


def _files_of_index(path: str) -> list[str]:
    """The files of a ``pytorch_model.bin.index.json``."""
    import json

    with open(path, "rb") as file:
        try:
            names = set(json.load(file)["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"model, {path[-80:]!r}, is no index with a weight_map of names to files") from None
    outside = [name for name in names if not isinstance(name, str) or os.path.basename(name) != name]
    if outside or not names:
        raise ValueError(f"model, {path[-80:]!r}, names files that do not lie beside it, or none")
    return [os.path.join(os.path.dirname(path), name) for name in sorted(names)]


def pickled_files(path: str) -> list[str]:
    """The files of ``torch.save`` that a path stands for: itself, those of its index, or those of a folder that has
    nothing else to read; none where C++ reads the path."""
    if path.lower().endswith(_PICKLED):
        return [path]
    if path.lower().endswith(".bin.index.json"):
        return _files_of_index(path)
    if not os.path.isdir(path):
        return []
    names = sorted(os.listdir(path))
    indices = [name for name in names if name.endswith(".index.json")]
    if any(name.lower().endswith(_READ) for name in names) or any(".bin." not in name for name in indices):
        return []
    if len(indices) == 1:
        return _files_of_index(os.path.join(path, indices[0]))
    return [os.path.join(path, name) for name in names if name.lower().endswith(_PICKLED)]


def _loaded(path: str) -> Any:
    """What a file of ``torch.save`` holds, which is read without running it; its numbers stay in the file."""
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"model is a file of torch.save, {path[-80:]!r}, and PyTorch, which reads it, is missing"
        ) from None
    import pickle
    import warnings

    with open(path, "rb") as file:
        is_archive = file.read(4) == b"PK\3\4"  # the only ones that can be mapped
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other protocols of pickle, which can be read
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except pickle.UnpicklingError:
        raise ValueError(f"model, {path[-80:]!r}, holds more than tensors, and to read that is to run it") from None
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        if "TorchScript" in str(error):
            raise ValueError(
                f"model, {path[-80:]!r}, is a program of TorchScript, and to read that is to run it"
            ) from None
        why = str(error).splitlines() or ["it ends too early"]
        raise ValueError(f"model, {path[-80:]!r}, cannot be read by torch.load: {why[0]}") from None


def _tensors_in(loaded: Mapping[Any, Any], begin: str = "") -> dict[str, Any]:
    """The tensors of a mapping and of those in it, by their names with dots between them."""
    found: dict[str, Any] = {}
    for name, value in loaded.items():
        if isinstance(value, Mapping):
            found.update(_tensors_in(value, f"{begin}{name}."))
        elif hasattr(value, "dtype"):
            found[f"{begin}{name}"] = value
    return found


def _from_torch(paths: Sequence[str]) -> dict[str, Any]:
    """The tensors of files of ``torch.save``."""
    all_tensors: dict[str, Any] = {}
    for path in paths:
        loaded = _loaded(path)
        if not isinstance(loaded, Mapping):
            raise ValueError(f"model, {path[-80:]!r}, holds no state_dict but {kind_of(loaded)}")
        found = _tensors_in(loaded)
        twice = next((name for name in found if name in all_tensors), None)
        if twice is not None:
            raise ValueError(f"model has a tensor {twice!r} in two files; the second is {path[-80:]!r}")
        all_tensors.update(found)
    return all_tensors


def _is_float(value: Any) -> bool:
    """Whether an array or a tensor has values: not integers, and codes without a scale are none."""
    name = str(getattr(value, "dtype", "")).rsplit(".", 1)[-1]
    return name in ("float32", "float64", "float16", "bfloat16")


def _arrays_of(model: Mapping[str, Any], argument: str = "model") -> dict[str, Any]:
    arrays = {}
    for name, value in model.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument} must have texts as names, not {kind_of(name)}")
        if not hasattr(value, "dtype"):
            raise TypeError(f"{argument} must map names to arrays, and has {kind_of(value)}")
        if _is_float(value):
            arrays[name] = value.detach().cpu() if hasattr(value, "detach") else value
    if not arrays:
        raise ValueError(f"{argument} has no arrays of float32, float64, float16 or bfloat16")
    return arrays


def _chosen(arrays: dict[str, Any], tensors: Any) -> dict[str, Any]:
    """Those that one of the names or patterns names."""
    if tensors is None:
        return arrays
    patterns = check_list(tensors, "tensors", check_name)
    for pattern in patterns:
        if not any(_core.names_tensor(pattern, name) for name in arrays):
            raise ValueError(f"model has no tensor {pattern[:80]!r}")
    return {
        name: array for name, array in arrays.items() if any(_core.names_tensor(pattern, name) for pattern in patterns)
    }


def _add_model(given: dict[str, Any], model: Any, kept: contextlib.ExitStack) -> None:
    """Adds the model to the arguments of the experiment, as paths or as arrays; `kept` keeps what is unpacked."""
    from fp8lab import _archives

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        model = model.state_dict()
    if _is_path(model) and isinstance(path := os.fspath(model), str):
        if _archives.is_archive(path):
            model = path = kept.enter_context(_archives.one_file(path))
        if files := pickled_files(path):
            model = _from_torch(files)
    if isinstance(model, Mapping):
        given["x"] = _chosen(_arrays_of(model), given.pop("tensors"))
    elif _is_path(model) or (isinstance(model, (list, tuple)) and model and all(map(_is_path, model))):
        given["file"] = model
    else:
        raise TypeError(f"model must be a path, paths, a mapping of names to arrays or a module, not {kind_of(model)}")


def check(
    model: Any,
    *,
    tensors: str | Sequence[str] | None = None,
    original: str | os.PathLike[str] | None = None,
    recipes: str | NamedRecipe | Recipe | Sequence[Any] | Mapping[str, Recipe] | None = None,
    ignore: Sequence[str] | None = None,
    activations: Any = None,
    activation_rows: int = 32,
    tensor_cores: str | MmaModel | Sequence[str | MmaModel] | None = None,
    tolerance: float = 3.0,
    row_tolerance: float = 12.0,
    zeroed_tolerance: float = 0.02,
    min_sqnr: float | None = None,
    bits_per_weight: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    scheduler: Any = None,
    threads: int | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Document:
    """Tell what FP8 and FP4 make of the weights of a model; Ctrl-C stops it.

    Parameters
    ----------
    model : path, sequence of paths, mapping of arrays, or torch.nn.Module
        A .safetensors, .npy, .npz or GGUF file, the ``*.index.json`` of a checkpoint, or a folder with these; a file
        of ``torch.save`` (.pt, .pth, .bin), their index or a folder of them, which PyTorch reads with
        ``weights_only=True``; a wheel or ZIP archive with one of these files; names and arrays; or a module, whose
        ``state_dict()`` is taken. Of a mapping or a module, arrays of other types than float32, float64, float16 and
        bfloat16 are left out.
    tensors : sequence of str, optional
        Names of the tensors, or patterns such as ``"model.layers.[0-3].*_proj.weight"``; all if left out.
    original : path, optional
        The model before it was quantized, which each weight of a quantized model of files is held against.
    recipes : sequence of recipes, optional
        As :func:`fp8lab.experiments.check` takes them, with its defaults, as are the rest.
    ignore : sequence of str, optional
        Patterns of tensors that stay as they are; embeddings, ``lm_head``, norms and routers if left out.
    activations : path or mapping of arrays, optional
        Inputs of layers, (tokens, columns of the weight), by the names of their weights, with or without ``.weight``
        behind: the outputs y = x w^T are measured, too, and their error by cause. ``fp8lab.torch.record_activations``
        records them. A path is that of a folder with NAME.npy, or of a .safetensors file with NAME or NAME.input.
    activation_rows : int
        So many rows of them are taken, in equal steps; a scale of the whole tensor is made of these alone.
    tensor_cores : str, MmaModel or sequence of these, optional
        What multiplies; if left out, a tensor core of H100 or B200 that takes the recipe.
    tolerance, row_tolerance : float
        dB below normal values that the median and the worst row of a tensor may have.
    zeroed_tolerance : float
        The share of elements that may become zero, above that of normal values.
    min_sqnr, bits_per_weight : float, optional
        One of them makes a plan: which tensors stay in bfloat16 for so many dB of each median row, or bits a weight.
    plan : path, optional
        A folder for the plan's files, as compressed-tensors and ModelOpt read them.
    checkpoint : path, optional
        A file where the result of each tensor of files, or weight of an audit, is kept as soon as it is known.
    resume : bool
        Go on from the checkpoint.
    scheduler : str or distributed.Client, optional
        The scheduler of a Dask cluster, such as ``"tcp://HOST:PORT"``, whose workers do it: they read the same files
        by the same paths, and have this release of fp8lab. The result is the same to the byte, but for its date.
        ``pip install 'fp8lab[dask]'`` has what it needs.
    threads : int, optional
        All cores if left out; they change nothing but the time.
    out : path, optional
        A folder for the result as JSON and CSV.

    Returns
    -------
    experiments.Document
        Tables ``recipes``, ``tensors`` (worst first), ``layers``, ``measures`` (a row for each tensor and recipe),
        ``plan`` and ``left_out``; with activations ``outputs``, a row for each layer, recipe and tensor core; of a
        quantized model ``weights``, ``findings`` and ``warnings``.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, a file of ``torch.save`` that holds more than tensors, and a model without tensors.
    ImportError
        For a scheduler without dask.distributed.
    OSError
        Where a file cannot be read or written, here or by a worker, and where no scheduler or worker answers.
    """
    if isinstance(activations, Mapping):
        activations = _arrays_of(activations, "activations")
    given: dict[str, Any] = {
        "original": original,
        "activations": activations,
        "activation_rows": activation_rows,
        "tensor_cores": tensor_cores,
        "recipes": recipes,
        "ignore": ignore,
        "tolerance": tolerance,
        "row_tolerance": row_tolerance,
        "zeroed_tolerance": zeroed_tolerance,
        "min_sqnr": min_sqnr,
        "bits_per_weight": bits_per_weight,
        "plan": plan,
        "checkpoint": checkpoint,
        "resume": check_bool(resume, "resume") or None,
        "threads": threads,
        "tensors": tensors,
    }
    with contextlib.ExitStack() as kept:
        _add_model(given, model, kept)
        if scheduler is not None:
            from fp8lab import _cluster

            given["scheduler"] = kept.enter_context(_cluster.scheduler_of(scheduler))
        return run("check", given, out)


_guard(__name__, __all__)
