# SPDX-License-Identifier: Apache-2.0
"""Training in FP32 against PyTorch in float64, from the definition alone; and what Python's ``train`` takes."""

import dataclasses
import math

import fp8lab
import numpy as np
import pytest
from fp8lab import experiments

SIZES = (16, 24, 24, 4)
BATCH, STEPS, RATE, SEED = 16, 12, 2.0**-8, 7


def uniform(low: float, high: float, seed: int, first: int, count: int) -> np.ndarray:
    """float(low + (high - low) (u + 1/2) / 2^53), u the top 53 bits of the words 1 and 0 of Philox's block i, key
    seed."""
    words = [fp8lab.philox4x32((i, 0, 0, 0), (seed, 0)) for i in range(first, first + count)]
    u = np.array([(word[1] << 32 | word[0]) >> 11 for word in words], np.float64)
    return (low + (high - low) * ((u + 0.5) * 2.0**-53)).astype(np.float32)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_fp32_training_is_pytorchs_but_for_rounding(loss, optimizer):
    torch = pytest.importorskip("torch")
    document = experiments.train(
        sizes=SIZES, recipes=[], batch=BATCH, steps=STEPS, loss=loss, optimizer=optimizer, learning_rate=RATE, clip=0.5, seed=SEED,
        error_steps=[],
    )  # fmt: skip
    actual = np.array(document.tables["losses"]["fp32_cdna3"])
    x = (
        torch.tensor(uniform(-math.sqrt(3), math.sqrt(3), 4 * SEED, 0, STEPS * BATCH * SIZES[0]))
        .double()
        .reshape(STEPS, BATCH, SIZES[0])
    )
    layers = []
    drawn = 0
    for inputs, outputs in zip(SIZES, SIZES[1:]):
        layer = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
        bound = math.sqrt(6 / inputs)
        weight = uniform(-bound, bound, 4 * SEED + 2, drawn, inputs * outputs)
        layer.weight.data = torch.tensor(weight).double().reshape(outputs, inputs)
        torch.nn.init.zeros_(layer.bias)
        drawn += inputs * outputs
        layers += [layer, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    made = {"adam": lambda p: torch.optim.Adam(p, RATE), "sgd": lambda p: torch.optim.SGD(p, RATE, momentum=0.9)}
    descent = made[optimizer](network.parameters())
    for step in range(STEPS):
        products = x[step][:, 0 : 2 * SIZES[-1] : 2] * x[step][:, 1 : 2 * SIZES[-1] : 2]
        y = network(x[step])
        value = (
            torch.nn.functional.mse_loss(y, products)
            if loss == "mse"
            else torch.nn.functional.cross_entropy(y, products.argmax(1))
        )
        descent.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        descent.step()
        # An output is made of dot products of 16, 24 and 24 terms and three biases: 67 roundings of 2^-24 of sums of
        # magnitudes, which are less than three times the loss's scale, 1 at least. Errors of the weights are below the
        # learning rate, 2^-8, times that of a gradient of norm 1/2 at most, each step, and so are less than another
        # rounding.
        bound = 2.0**-24 * 67 * 3
        assert abs(actual[step] - value.item()) <= bound * max(1, value.item()), step


def test_a_recipe_of_ones_own_can_be_trained():
    recipe = {one.name: one.recipe for one in fp8lab.linear_recipes()}["te_current_scaling_hopper"]
    own = dataclasses.replace(recipe, fprop=dataclasses.replace(recipe.fprop, model="exact"))
    document = experiments.train(
        sizes=(32, 32, 16), batch=32, steps=3, recipes=["te_current_scaling_hopper", ("mine", own)], error_steps=[]
    )
    losses = document.tables["losses"]
    assert losses["mine"][0] != losses["te_current_scaling_hopper"][0]
    assert abs(losses["mine"][0] - losses["te_current_scaling_hopper"][0]) < 0.01


def test_an_interrupted_training_goes_on_from_its_checkpoint(tmp_path):
    def train(**named):
        return experiments.train(sizes=(32, 64, 8), batch=32, recipes=["te_delayed_hopper"], error_steps=[5], **named)

    whole = train(steps=30)
    train(steps=11, checkpoint=tmp_path / "state")
    resumed = train(steps=30, checkpoint=tmp_path / "state", resume=True)
    for name in ("losses", "tensors", "errors", "runs"):
        assert list(resumed.tables[name]) == list(whole.tables[name])
        for column in whole.tables[name]:
            np.testing.assert_array_equal(resumed.tables[name][column], whole.tables[name][column])
    with pytest.raises(ValueError, match="is of another batch: 32, not 64"):
        experiments.train(
            sizes=(32, 64, 8),
            batch=64,
            recipes=["te_delayed_hopper"],
            error_steps=[5],
            checkpoint=tmp_path / "state",
            resume=True,
        )
