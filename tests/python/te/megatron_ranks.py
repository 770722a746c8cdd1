# SPDX-License-Identifier: Apache-2.0
"""A layer of Megatron-core with Transformer Engine's modules on two processes, tensor parallel: run by test_programs.py under
``python -m fp8lab.te``. Prints one JSON line: the losses of a training, and whether the MLP has the bits of its parts."""

import json

import torch
import torch.distributed as dist
import transformer_engine.pytorch as te
from megatron.core import parallel_state
from megatron.core.fp8_utils import get_fp8_context
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.spec_utils import build_module
from megatron.core.transformer.transformer_config import TransformerConfig
from transformer_engine.common.recipe import DelayedScaling

TYPE, INNER, HALF = torch.bfloat16, 128, 64
HIDDEN = 64


def parts_of(mlp) -> list:
    """The process's own half of the two layers, as modules that know of no other process."""
    first = te.LayerNormLinear(HIDDEN, HALF, bias=False, params_dtype=TYPE)
    second = te.Linear(HALF, HIDDEN, bias=False, params_dtype=TYPE)
    with torch.no_grad():
        first.weight.copy_(mlp.linear_fc1.weight)
        second.weight.copy_(mlp.linear_fc2.weight)
    return [first, second]


def has_the_bits_of_its_parts(mlp, config) -> bool:
    """Three forward passes: the sum over both processes of what the parts give. Biases are zeros, gamma is one."""
    first, second = parts_of(mlp)
    recipe = DelayedScaling(amax_history_len=4, amax_compute_algo="max")
    equal = []
    with torch.no_grad():
        for step in range(3):
            torch.manual_seed(step)
            x = torch.randn(16, 2, HIDDEN, dtype=TYPE, device="cuda") * (step + 1)
            with get_fp8_context(config):
                y, _bias = mlp(x)
            with te.autocast(enabled=True, recipe=recipe, amax_reduction_group=dist.group.WORLD):
                part = second(torch.nn.functional.gelu(first(x)))
            dist.all_reduce(part)
            equal.append(torch.equal(y, part))
    return all(equal)


def train(layer, config) -> list[float]:
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    torch.manual_seed(5)
    x = torch.randn(16, 2, HIDDEN, dtype=TYPE, device="cuda")
    mask = torch.triu(torch.ones(1, 1, 16, 16, dtype=torch.bool, device="cuda"), 1)
    losses = []
    for _ in range(3):
        with get_fp8_context(config):
            y, _context = layer(x.clone().requires_grad_(), attention_mask=mask)
        loss = (y.float() - 2 * x.float()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=1, hidden_size=HIDDEN, ffn_hidden_size=INNER, num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0,
        tensor_model_parallel_size=2, bf16=True, params_dtype=TYPE, fp8="hybrid", fp8_recipe="delayed", fp8_amax_history_len=4,
        fp8_amax_compute_algo="max",
    )  # fmt: skip
    layer = build_module(get_gpt_layer_with_transformer_engine_spec(), config=config, layer_number=1)
    kinds = sorted({type(one).__name__ for one in layer.modules() if type(one).__name__.startswith("TE")})
    is_equal = has_the_bits_of_its_parts(layer.mlp, config)
    print(json.dumps({"kinds": kinds, "is_equal": is_equal, "losses": train(layer, config)}))
    dist.destroy_process_group()


main()
