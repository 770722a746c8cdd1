# SPDX-License-Identifier: Apache-2.0
"""Run under ``python -m fp8lab.te``: what ``fp8lab.torch.watch`` says of Transformer Engine's modules is what it says of the same
layers that ``fp8lab.torch.convert`` made, whose casts are Fp8State's in C++.

watched.py RECIPE NAME: Transformer Engine's recipe, and that of fp8lab; it prints the rows that were equal.
"""

import sys

import fp8lab
import fp8lab.torch
import numpy as np
import torch
import transformer_engine.pytorch as te
from transformer_engine.common import recipe as recipes

STEPS = 3


def inputs(step):
    """x and dy; both jump, so that old scales saturate and underflow."""
    draws = np.random.default_rng(step)
    size = (1.0, 40.0, 0.01)[step % 3]
    made = [torch.from_numpy(draws.normal(0, one, (128, 128)).astype(np.float32)) for one in (size, 1e-3 * size)]
    return made[0].bfloat16().requires_grad_(), made[1].bfloat16()


def steps(seen, run):
    with seen:
        for step in range(STEPS):
            x, dy = inputs(step)
            run(x).backward(dy)
    return seen.arrays()


def main(recipe: str, name: str) -> None:
    torch.manual_seed(1)
    module = te.Linear(128, 128, bias=True, params_dtype=torch.bfloat16)
    plain = torch.nn.Linear(128, 128, bias=True, dtype=torch.bfloat16)
    plain.load_state_dict({one: module.state_dict()[one] for one in ("weight", "bias")})
    own = getattr(recipes, recipe)()

    def run(x):
        with te.autocast(enabled=True, recipe=own):
            return module(x)

    found = steps(fp8lab.torch.watch(module), run)
    fp8lab.torch.convert(plain, name)
    expected = steps(fp8lab.torch.watch(plain), plain)
    assert sorted(found) == sorted(expected) and len(expected["step"]) == 6 * STEPS
    is_random = "nvfp4" in name  # dy is rounded stochastically, by other random bytes
    kept = expected["tensor"] != "dy" if is_random else np.full(len(expected["step"]), True)
    for column in expected:
        one, two = found[column][kept], expected[column][kept]
        assert one.tolist() == two.tolist() or np.array_equal(one, two, equal_nan=True), (column, one, two)
    print(np.count_nonzero(kept), "rows,", np.count_nonzero(found["saturated"]), "of casts that saturate")
    others(own)


def others(own) -> None:
    """Layers of the other modules: each GEMM has its six rows, and results have the bits that they have unwatched."""
    results = []
    for is_watched in (False, True):
        torch.manual_seed(2)
        torch.cuda.manual_seed(2)
        layer = te.TransformerLayer(128, 256, 2, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=torch.bfloat16,
                                    self_attn_mask_type="causal")  # fmt: skip
        seen = fp8lab.torch.watch(layer, first_step=5)
        x = torch.randn(64, 2, 128, generator=torch.Generator().manual_seed(3)).bfloat16().requires_grad_()
        for _ in range(2):
            with seen if is_watched else torch.enable_grad(), te.autocast(enabled=True, recipe=own):
                y = layer(x)
                y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(4)).bfloat16())
        results.append((y.detach().clone(), x.grad, *(one.grad for one in layer.parameters())))
    assert all(torch.equal(one, two) for one, two in zip(*results))
    arrays = seen.arrays()
    names = ["self_attention.layernorm_qkv", "self_attention.proj", "layernorm_mlp.fc1", "layernorm_mlp.fc2"]
    assert list(dict.fromkeys(arrays["layer"].tolist())) == names
    assert len(arrays["step"]) == 2 * 4 * 6 and sorted(set(arrays["step"].tolist())) == [5, 6]
    assert np.isfinite(arrays["sqnr"]).all() and (arrays["amax"] > 0).all()
    try:
        fp8lab.torch.watch(layer, causes_every=1)
    except ValueError as error:
        assert "causes_every is for layers of convert()" in str(error)
    else:
        raise AssertionError("causes_every was taken")


if __name__ == "__main__":
    main(*sys.argv[1:])
