# SPDX-License-Identifier: Apache-2.0
"""Whole trainings of fp8lab.msamp: against MS-AMP's own Python (msamp_real.py), over one process, and over 2 and 4."""

import contextlib
import functools
import io
import json
import math
import os
import subprocess
import sys
import tarfile

import ml_dtypes
import numpy as np
import pytest
import repositories

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "te"))
import warm  # noqa: E402

torch = pytest.importorskip("torch", reason="fp8lab.msamp computes on torch tensors")
import msamp_ranks  # noqa: E402
import msamp_real  # noqa: E402
from fp8lab import msamp  # noqa: E402
from msamp_scenarios import (  # noqa: E402
    FEW_RANK_STEPS,
    FEW_STEPS,
    RANK_STEPS,
    SCENARIOS,
    STEPS,
    digest,
    moments_of,
    network,
    rank_loss,
    shared,
    summary,
    tensors_of,
    train,
)

EXHAUSTIVE = "FP8LAB_EXHAUSTIVE" in os.environ
exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="whole trainings: ./dev test --exhaustive")

#: What MS-AMP's own Python leaves (commit 9746ea8, by msamp_real.py): digests of losses, parameters, moments and scales,
#: and the last loss, after the ordinary tests' steps and after 200; of several ranks after 3 and 22.
REAL = {
    "code 2": (
        "cbfee4055219b11b 24422fff58fc4fd7 155b4876adc9602e 10a7a3edf2c4f825 163.455362",
        "fb7546c29cc13757 a4e45c2fe9959c48 11d6b7e94967c4b7 d23222e6ee71b66a 46.620306",
    ),
    "ddp 2": (
        "0b5ba642dccc9b4d 5ee3cb7fe15a11c7 f15c6f00e5436781 a0cab545d38c8d57 163.500346",
        "59a9ed4b2d94a965 2e6fbf38ada6a54a ea3d208ce0106ecd 5bd14c8de4aadbee 46.460834",
    ),
    "code 4": (
        "44e23e1eaccdc7ab c774f4705aef7321 d762eb86c86e11d6 2c9f45ad890f5f6d 161.904075",
        "7fa0dfe35328f7b5 bc9770b733b7d87b b1ecf56af650ecd3 7449d5bd479f3b61 42.347229",
    ),
    "ddp 4": (
        "601591020777d061 90fc7120b8fdb76a 77f8edc3063e202e 2790c2fec608915a 161.768819",
        "8245df971e3e8df5 43e9bfc301d1dfac 85c682a509ed0987 eee36a4f7b4cd9cb 42.239227",
    ),
    "O1": (
        "77779f59df0ac1db bd1e752603d9c8c2 9d86815e02fb43d4 e8b26fdab5e4b981 71.758083",
        "72a75f781b75f4f5 8f71a26c0a395c3e 3535391bf8377f77 76b1becc51650366 33.013457",
    ),
    "O1 L2": (
        "521c3a39bd2b3ac1 47874ea055817aa1 32864e1ba4192c16 c5188c7f0838f5e0 103.336505",
        "aed4ac46b8874165 b0124dfa88d48656 03707017ce690643 d9e4c200aaac4f1f 37.108113",
    ),
    "O2": (
        "7da3dcd736f48a54 f221d9ec0f323dd7 e1ae1ac875f495fc 375eeb9af0e1dfe1 72.406097",
        "79a5a71fdb49b38d be72011803d975f6 054ba42838dc3833 a6bbe5c7622167a2 33.654033",
    ),
    "O2 L2": (
        "275544b542ec9376 e6b367eecf69245b cdb7a5eea573e869 4afe5ab817635dd4 77.464470",
        "2cec5c9839788fd7 31a62dd5e93f5797 0a8e89a48a9a175d 5b7658a5dff6ffeb 24.391369",
    ),
    "O2 bfloat16": (
        "af6bf328248f80d6 91263ad80c3e6bb5 666d05af2f7eb103 4c7a19013d63a9e4 99.649816",
        "e5dc959f091d9c23 03f18b5ae391b509 85a4a78c7147df32 ec8b52a4b482f790 49.823551",
    ),
    "O2 ascent": (
        "1d27f9541db8b50e e30d9eea89ed54fe 2ddc3dcfdc885293 59043c65f6f449b5 222.663410",
        "f64155373275e0c9 8e03fec2e6d426ea db308970f20d4d09 09bc0e905311ca00 19598.100677",
    ),
    "O3": (
        "7da3dcd736f48a54 365a7233159cc51e 3a858898c611516b 375eeb9af0e1dfe1 72.406097",
        "79a5a71fdb49b38d b57421dffa372900 9e20ea95a1365d85 7ee6f31c2a8c1d70 33.654033",
    ),
}


def figures(found: dict) -> str:
    """A summary, as REAL has it."""
    digests = [found[name] for name in ("losses", "parameters", "moments", "scales")]
    return " ".join([*digests, f"{float.fromhex(found['some'][-1]):.6f}"])


def trained(name: str, steps: int) -> dict:
    """The summary of one of SCENARIOS."""
    level, kind, options, dtype = SCENARIOS[name]
    model = network()
    own = getattr(torch.optim, kind)(model.parameters(), **options)
    if level == "O3":
        model, zero = msamp.initialize_zero(model, own)
        losses = train(model, zero, dtype, steps)
        return summary(losses, model, zero.optimizer, [master for _, _, master in zero.weights])
    model, optimizer = msamp.initialize(model, own, level)
    return summary(train(model, optimizer, dtype, steps), model, optimizer)


@contextlib.contextmanager
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["O1", "O2 L2", "O2 bfloat16", "O3"])
def test_trainings(name):
    assert figures(trained(name, FEW_STEPS)) == REAL[name][0]


@exhaustive
@pytest.mark.parametrize("name", SCENARIOS)
def test_long_trainings(name):
    assert figures(trained(name, FEW_STEPS)) == REAL[name][0]
    assert figures(trained(name, STEPS)) == REAL[name][1]


def test_a_wrong_order_is_seen(monkeypatch):
    """The digests are others where a moment is rounded before it updates the parameter."""
    from fp8lab.msamp import _optimizers

    def rounded_first(*numbers):
        m, v = _MOMENTS(*numbers)
        return msamp.cast(m, "e4m3").float(), v

    _MOMENTS = _optimizers._moments
    monkeypatch.setattr(_optimizers, "_moments", rounded_first)
    found, wanted = figures(trained("O2", FEW_STEPS)).split(), REAL["O2"][0].split()
    assert all(found[i] != wanted[i] for i in (0, 1, 2))


@exhaustive
def test_ms_amp_itself(tmp_path):
    """The figures, from the checkout."""
    try:
        archive = repositories.git(repositories.MS_AMP, "archive", msamp_real.COMMIT, "msamp")
    except repositories.NoCheckoutError as error:
        pytest.skip(str(error))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        sources = {
            one.name: files.extractfile(one).read() for one in files if one.isfile() and one.name.endswith(".py")
        }
    msamp_real.prepared_folder(sources, tmp_path)
    for which, steps in enumerate(((FEW_STEPS, FEW_RANK_STEPS), (STEPS, RANK_STEPS))):
        command = [sys.executable, msamp_real.__file__, str(tmp_path), *map(str, steps)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert {name: figures(one) for name, one in found.items()} == {name: both[which] for name, both in REAL.items()}


# --- several ranks ----------------------------------------------------------------------------------------------------


@functools.cache
def over_ranks() -> dict:
    """What msamp_ranks.py leaves over 2 processes, and with --exhaustive over 4."""
    steps = [str(RANK_STEPS), "long"] if EXHAUSTIVE else [str(FEW_RANK_STEPS)]
    done = warm.run(msamp_ranks.__file__, *steps, plain=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_several_ranks():
    """Each method over 2 processes, and 4: against MS-AMP's own Python, and against one process. They are one test, so
    that the processes start once."""
    for ranks, found in over_ranks().items():
        if ranks == "decay":
            continue
        for method in msamp_ranks.METHODS:
            check_ranks(method, int(ranks), [one[method] for one in found])


def check_ranks(method: str, ranks: int, found: list[dict]) -> None:
    assert len({one["weights"] for one in found}) == 1, "all ranks have the same"
    if method in ("code", "ddp"):
        assert figures(found[0]) == REAL[f"{method} {ranks}"][EXHAUSTIVE], (method, ranks)
    with one_thread():
        wanted = in_one_process(method, ranks, RANK_STEPS if EXHAUSTIVE else FEW_RANK_STEPS)
    assert [(one["some"], one["weights"]) for one in found] == [one[:2] for one in wanted], (method, ranks)
    if method == "O3":  # each rank has the moments of its weights, and each weight has one rank
        owned = [
            [one for one in of_ranks if one is not None] for of_ranks in zip(*[one["of weights"] for one in found])
        ]
        assert owned == [[one] for one in wanted[0][2]], ranks
    else:
        assert [one["of weights"] for one in found] == [one[2] for one in wanted], (method, ranks)


def power_of(amax, largest: float, old: float = 1.0) -> float:
    """The scale of an amax that is a number, by its exponent."""
    if amax == 0:
        return old
    mantissa, exponent = math.frexp(largest)
    other, below = math.frexp(float(amax))
    return 2.0 ** (exponent - below - (mantissa < other))


def e4m3(x, scale: float) -> np.ndarray:
    return np.clip(x * np.float32(scale), -448, 448).astype(ml_dtypes.float8_e4m3fn)


def chained(parts: list[np.ndarray]) -> np.ndarray:
    """A sum of codes whose additions are rounded."""
    total = parts[0]
    for one in parts[1:]:
        total = e4m3(total.astype(np.float32) + one.astype(np.float32), 1.0)
    return total


def ringed(codes: list[np.ndarray]) -> np.ndarray:
    """Each rank's part of flat codes, which begins after it and ends with it."""
    ranks, flat = len(codes), [one.reshape(-1) for one in codes]
    size = -(-flat[0].size // ranks)
    parts = [chained([flat[(part + 1 + i) % ranks][part * size : (part + 1) * size] for i in range(ranks)])
             for part in range(ranks)]  # fmt: skip
    return np.concatenate(parts)


class OneProcess:
    """The reductions of N ranks' gradients, without collectives: by ml_dtypes and numpy."""

    def __init__(self, method: str, ranks: int) -> None:
        self.method, self.ranks, self.mu = method, ranks, 1.0
        self.owners: list[int] = []
        self.scales: dict[int, float] = {}

    def reduce(self, gradients: list[list[np.ndarray]]) -> list[tuple[np.ndarray, float]]:
        """Codes and inverse scales of the averages, for the gradients of each weight on each rank."""
        if self.method == "paper":
            return self._paper(gradients)
        cast, scales = [], []
        for i, of_ranks in enumerate(gradients):
            scale = power_of(max(np.abs(one).max() for one in of_ranks), 448.0, self.scales.get(i, 1.0))
            if self.method == "ddp":
                scale = float(np.float32(scale) * np.float32(1 / math.sqrt(self.ranks)))
            self.scales[i] = scale
            cast.append([e4m3(one, scale) for one in of_ranks])
            scales.append(scale)
        if self.method == "O3":
            sums = [chained([one[(self.owners[i] + 1 + k) % self.ranks] for k in range(self.ranks)])
                    for i, one in enumerate(cast)]  # fmt: skip
        else:
            order = range(len(cast))[::-1] if self.method == "ddp" else range(len(cast))
            flat = ringed([np.concatenate([cast[i][rank].reshape(-1) for i in order]) for rank in range(self.ranks)])
            sizes = np.cumsum([cast[i][0].size for i in order])[:-1]
            sums = dict(zip(order, np.split(flat, sizes), strict=True))
        return [
            (sums[i].reshape(one[0].shape), float(np.float32(1) / np.float32(scale) / np.float32(self.ranks)))
            for i, (one, scale) in enumerate(zip(cast, scales, strict=True))
        ]

    def _paper(self, gradients):
        made, saturated = [], 0.0
        for of_ranks in gradients:
            scaled = [one * np.float32(self.mu) for one in of_ranks]
            local = [power_of(np.abs(one).max(), 448.0) for one in scaled]
            codes = [e4m3(one, scale) for one, scale in zip(scaled, local, strict=True)]
            saturated = max(
                saturated, *(float(np.float32((np.abs(c.astype(np.float32)) == 448).mean())) for c in codes)
            )
            least = min(local)
            again = [e4m3(c.astype(np.float32) / np.float32(s), least) for c, s in zip(codes, local, strict=True)]
            inverse = np.float32(1) / np.float32(
                np.float32(np.float32(least) * np.float32(self.ranks)) * np.float32(self.mu)
            )
            made.append((ringed(again).reshape(codes[0].shape), float(inverse)))
        self.mu = self.mu / 2 if saturated > 1e-5 else self.mu * 2 ** (1 / 1000)
        return made


def in_one_process(method: str, ranks: int, steps: int) -> list:
    """The losses of each rank, and digests of its weights and of the moments of each: N models, one after the other."""
    reductions = OneProcess(method, ranks)
    pairs = []
    for _ in range(ranks):
        model = shared()
        own = torch.optim.AdamW(model.parameters(), lr=0.01)
        pairs.append(msamp.initialize_zero(model, own) if method == "O3" else msamp.initialize(model, own, "O2"))
    weights = [[one for one in model.parameters() if isinstance(one, msamp.ScalingParameter)] for model, _ in pairs]
    if method == "O3":
        sizes, owners = [0] * ranks, {}
        for i in sorted(range(len(weights[0])), key=lambda i: (-weights[0][i].numel(), i % ranks)):
            owners[i] = sizes.index(min(sizes))
            sizes[owners[i]] += weights[0][i].numel()
        reductions.owners = [owners[i] for i in range(len(weights[0]))]
    losses = [[] for _ in range(ranks)]
    for step in range(steps):
        for rank, (model, _) in enumerate(pairs):
            model.first.state.keeps_gradients = True  # reduce() casts them
            loss, kept = rank_loss(model, step, rank)
            loss.backward()
            losses[rank].append(kept)
        gradients = [[one[i].grad.numpy() for one in weights] for i in range(len(weights[0]))]
        reduced = reductions.reduce(gradients)
        for rank, (_, optimizer) in enumerate(pairs):
            for weight, (codes, inverse) in zip(weights[rank], reduced, strict=True):
                meta = msamp.ScalingMeta("e4m3")
                meta.scale_inv.fill_(inverse)
                weight.grad = msamp.ScalingTensor(torch.from_numpy(codes.view(np.uint8).copy()), meta)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    told = []
    for kept, mine, (_, optimizer) in zip(losses, weights, pairs, strict=True):
        holders, inner = mine, optimizer
        if method == "O3":
            masters = {id(weight): master for weight, _, master in optimizer.weights}
            holders, inner = [masters[id(one)] for one in mine], optimizer.optimizer
        some = [kept[i] for i in (0, steps // 2, steps - 1)]
        told.append((some, digest([part for one in mine for part in tensors_of(one)]), moments_of(inner, holders)))
    return told


@exhaustive
def test_the_gradient_of_nothing():
    """Over 4 processes: MS-AMP's wrapper halves the scale of a gradient of zeros each step, which is NaN in the 128th."""
    for found in over_ranks()["decay"]:
        assert found["code"]["nan_at"] is None and set(found["code"]["scales"]) == {1.0}
        assert found["ddp"]["nan_at"] == 128
        assert found["ddp"]["scales"] == [2.0**-i for i in range(1, 131)]
