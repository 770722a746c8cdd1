# SPDX-License-Identifier: Apache-2.0
"""Small torch models with random weights, for the tests of fp8lab.torch: each gives a loss of a batch."""

import os
import pathlib
import sys

import pytest
import torch
from torch.nn import functional

EXHAUSTIVE = "FP8LAB_EXHAUSTIVE" in os.environ
WIDTH, HEADS, WORDS, TOKENS = 64, 2, 96, 16


class Conv1D(torch.nn.Module):
    """A stand-in of the class of transformers.pytorch_utils: x @ weight + bias, with weight (nx, nf)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = torch.nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = torch.nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


Conv1D.__module__ = "transformers.pytorch_utils"


class Attention(torch.nn.Module):
    def __init__(self, project, causal):
        super().__init__()
        self.qkv, self.out, self.causal = project(WIDTH, 3 * WIDTH), project(WIDTH, WIDTH), causal

    def forward(self, x):
        batch, length, _ = x.shape
        heads = [one.view(batch, length, HEADS, -1).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Gated(torch.nn.Module):
    """The MLP of Llama."""

    def __init__(self, project):
        super().__init__()
        self.gate, self.up, self.down = project(WIDTH, 96), project(WIDTH, 96), project(96, WIDTH)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(torch.nn.Module):
    def __init__(self, project, norm, causal, mlp):
        super().__init__()
        self.attention, self.mlp = Attention(project, causal), mlp
        self.before, self.between = norm(WIDTH), norm(WIDTH)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Words(torch.nn.Module):
    """A language model, whose head has the embedding's weight."""

    def __init__(self, project, norm, mlp):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.ModuleList(Block(project, norm, True, mlp()) for _ in range(2))
        self.norm = norm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words):
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), words.roll(-1, 1).flatten())


class Pictures(torch.nn.Module):
    """A vision transformer of 16 patches."""

    def __init__(self, project):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, WIDTH, 8, 8)
        mlp = torch.nn.Sequential(project(WIDTH, 128), torch.nn.GELU(), project(128, WIDTH))
        self.blocks = torch.nn.ModuleList([Block(project, torch.nn.LayerNorm, False, mlp)])
        self.head = project(WIDTH, 16)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x.mean(1)), torch.arange(len(x)) % 16)


def linear(inputs, outputs, bias=False):
    return torch.nn.Linear(inputs, outputs, bias=bias)


def conv1d(inputs, outputs):
    return Conv1D(outputs, inputs)


def llama():
    return Words(linear, torch.nn.RMSNorm, lambda: Gated(linear))


def gpt2():
    def mlp():
        return torch.nn.Sequential(conv1d(WIDTH, 128), torch.nn.GELU("tanh"), conv1d(128, WIDTH))

    return Words(conv1d, torch.nn.LayerNorm, mlp)


def vit():
    return Pictures(lambda inputs, outputs: linear(inputs, outputs, True))


MODELS = {"llama": llama, "gpt2": gpt2, "vit": vit}


def hugging_face(name):
    """A small model of the transformers package, which gives a loss; the test is skipped where it is missing."""
    for folder in sorted((pathlib.Path(sys.prefix) / "releases").glob("*")):  # where ./dev installs it, apart
        if folder.name.startswith(("transformers-", "tokenizers-", "regex-")) and str(folder) not in sys.path:
            sys.path.append(str(folder))
    transformers = pytest.importorskip("transformers")
    size = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": WIDTH}
    if name == "vit":
        config = transformers.ViTConfig(**size, intermediate_size=128, image_size=32, patch_size=8, num_labels=16)
        return lambda: OfHuggingFace(transformers.ViTForImageClassification(config), "pixel_values")
    if name == "llama":
        config = transformers.LlamaConfig(**size, vocab_size=WORDS, num_key_value_heads=2, intermediate_size=96)
    else:
        config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=WIDTH, vocab_size=WORDS, n_positions=64,
                                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    config.use_cache = False
    return lambda: OfHuggingFace(transformers.AutoModelForCausalLM.from_config(config), "input_ids")


class OfHuggingFace(torch.nn.Module):
    """A model of transformers: its loss where it is to tell the words themselves, or a picture's number in the batch."""

    def __init__(self, model, called):
        super().__init__()
        self.model, self.called = model, called

    def forward(self, inputs):
        labels = inputs if self.called == "input_ids" else torch.arange(len(inputs)) % 16
        return self.model(**{self.called: inputs, "labels": labels}).loss


class Descent:
    """What torch.optim.SGD computes: that imports the compiler, which takes as long as all of these tests."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-self.lr)


def optimizer_of(model, lr):
    return (torch.optim.SGD if EXHAUSTIVE else Descent)(model.parameters(), lr=lr)


def batch(model, step):
    """The input of a step: the same in each run."""
    generator = torch.Generator().manual_seed(100 + step)
    if isinstance(model, Pictures) or getattr(model, "called", "") == "pixel_values":
        return torch.randn(16, 3, 32, 32, generator=generator)
    return torch.randint(WORDS, (2, TOKENS), generator=generator)


def train(model, steps, first=0, optimizer=None):
    """The losses of some steps."""
    optimizer = optimizer or optimizer_of(model, 0.1)
    losses = []
    for step in range(first, first + steps):
        loss = model(batch(model, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def words_of(tensor):
    """A tensor's bits."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()
