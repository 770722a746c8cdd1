# SPDX-License-Identifier: Apache-2.0
"""What FP8 and FP4 would make of the weights of a model: files, arrays, or a module of PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fp8lab._arrays import kind_of
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


def _is_path(model: Any) -> bool:
    return isinstance(model, (str, os.PathLike))


def _from_torch(path: str) -> Mapping[str, Any]:
    """The tensors of a file of torch.save, which is read without running what it holds."""
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"model is a file of torch.save, {path[-80:]!r}, and PyTorch, which reads it, is missing"
        ) from None
    import pickle

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(f"model, {path[-80:]!r}, holds more than tensors, and to read that is to run it") from None
    if not isinstance(loaded, Mapping):
        raise ValueError(f"model, {path[-80:]!r}, holds no state_dict but {kind_of(loaded)}")
    return loaded


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
        A .safetensors or .npy file, the ``*.index.json`` of a checkpoint, or a folder with these; a file of
        ``torch.save`` (.pt, .pth, .bin), which PyTorch reads with ``weights_only=True``; names and arrays; or a
        module, whose ``state_dict()`` is taken. Of a mapping or a module, arrays of other types than float32, float64,
        float16 and bfloat16 are left out.
    tensors : sequence of str, optional
        Names of the tensors of files, or patterns such as ``"model.layers.[0-3].*_proj.weight"``; all if left out.
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
        A file where the result of each tensor of files is kept as soon as it is known.
    resume : bool
        Go on from the checkpoint.
    scheduler : str or distributed.Client, optional
        The scheduler of a Dask cluster, such as ``"tcp://HOST:PORT"``, whose workers measure: they read the same files
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
        "resume": resume or None,
        "threads": threads,
        "tensors": tensors,
    }
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        model = model.state_dict()
    if isinstance(model, (str, os.PathLike)) and str(os.fspath(model)).lower().endswith(_PICKLED):
        model = _from_torch(str(os.fspath(model)))
    if isinstance(model, Mapping):
        given["x"] = _arrays_of(model)
    elif _is_path(model) or (isinstance(model, (list, tuple)) and model and all(map(_is_path, model))):
        given["file"] = model
    else:
        raise TypeError(f"model must be a path, paths, a mapping of names to arrays or a module, not {kind_of(model)}")
    if scheduler is None:
        return run("check", given, out)
    from fp8lab import _cluster

    with _cluster.scheduler_of(scheduler) as given["scheduler"]:
        return run("check", given, out)


_guard(__name__, __all__)
