# SPDX-License-Identifier: Apache-2.0
"""Does a small transformer train under an FP8 recipe on a GPU that is not here, and if not as BF16 does, which layer
parts from it first?

    python -m fp8lab.te --device h100 train_without_the_hardware.py --out h100.json
    python -m fp8lab.te --device b200 train_without_the_hardware.py --recipe delayed,nvfp4 --seed 2 --out b200.json
    python train_without_the_hardware.py --table h100.json b200.json

Two layers of te.TransformerLayer learn a text of a small grammar, character by character: once in BF16, and once under
each of Transformer Engine's recipes that the device has, from the same weights, on the same batches. Beside the losses,
the program writes how far the output of each layer is from that of the BF16 run in the same step, and from what its own
weights give in BF16. docs/train_without_the_hardware.md reads the results.
"""

import argparse
import hashlib
import importlib.metadata
import json
import math
import platform
import random
import shlex
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "data" / "train_without_the_hardware"
HIDDEN, FFN, HEADS, LAYERS = 192, 768, 6, 2
BATCH, LENGTH = 4, 64
RATE, WARMUP, DECAY = 1e-3, 20, 0.01
#: A recipe's name, and how Transformer Engine's is made. "bf16" is the run that all others are held against,
#: "bf16_nudged" the same with one weight moved by one ulp: how far two runs part that differ in nothing that matters.
RECIPES = {
    "bf16": None,
    "bf16_nudged": None,
    "delayed": lambda r: r.DelayedScaling(),
    "delayed_e4m3": lambda r: r.DelayedScaling(fp8_format=r.Format.E4M3),
    "current": lambda r: r.Float8CurrentScaling(),
    "block": lambda r: r.Float8BlockScaling(),
    "mxfp8": lambda r: r.MXFP8BlockScaling(),
    "nvfp4": lambda r: r.NVFP4BlockScaling(),
}

# ---------------------------------------------------------------- the text

#: A probabilistic grammar: what a symbol becomes, with weights. Words in lower case are the text itself.
GRAMMAR = {
    "SENTENCE": [(6, "NP VP ."), (2, "ADV , NP VP ."), (1, "if NP VP , NP VP .")],
    "NP": [(4, "the NOUN"), (3, "the ADJ NOUN"), (2, "a NOUN"), (1, "NP of NP")],
    "VP": [(4, "VERB NP"), (2, "SLEEP"), (1, "VERB NP and VERB NP"), (1, "knows that NP VP")],
    "NOUN": [(3, "cat"), (2, "miner"), (2, "queen"), (1, "violin"), (1, "harbor"), (1, "jungle"), (1, "wizard")],
    "ADJ": [(3, "old"), (2, "quick"), (1, "frozen"), (1, "little")],
    "VERB": [(3, "sees"), (2, "likes"), (1, "follows"), (1, "explains")],
    "SLEEP": [(2, "sleeps"), (1, "waits")],
    "ADV": [(2, "today"), (1, "often")],
}
ALPHABET = " abcdefghijklmnopqrstuvwxyz.,"
VOCABULARY = 32  # a multiple of 16, which every recipe's GEMM takes


def words(symbol: str, draws: random.Random) -> tuple[list[str], float]:
    """What a symbol of the grammar becomes, at last, and the nats of the rules that were drawn."""
    if symbol not in GRAMMAR:
        return [symbol], 0.0
    weights, rules = zip(*GRAMMAR[symbol], strict=True)
    (number,) = draws.choices(range(len(rules)), weights)
    found, nats = [], math.log(sum(weights) / weights[number])
    for one in rules[number].split():
        more, its_nats = words(one, draws)
        found, nats = found + more, nats + its_nats
    return found, nats


def text(seed: int, length: int) -> tuple[str, float]:
    """At least ``length`` characters of the grammar, and the nats a character of the rules that made them."""
    draws, made, nats = random.Random(seed), "", 0.0
    while len(made) < length:
        sentence, its_nats = words("SENTENCE", draws)
        made += " ".join(sentence).replace(" .", ".").replace(" ,", ",") + " "
        nats += its_nats
    return made, nats / len(made)


# ---------------------------------------------------------------- the model


def language_model(seed: int):
    """Embeddings, te.TransformerLayer and a head, with bfloat16 weights drawn by the emulated CUDA generator."""
    import torch
    import transformer_engine.pytorch as te

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            like = {"device": "cuda", "dtype": torch.bfloat16}
            self.symbols = torch.nn.Parameter(torch.empty(VOCABULARY, HIDDEN, **like).normal_(0, 0.02))
            self.places = torch.nn.Parameter(torch.empty(LENGTH, HIDDEN, **like).normal_(0, 0.02))
            self.layers = torch.nn.ModuleList(
                te.TransformerLayer(
                    HIDDEN, FFN, HEADS, layer_number=number + 1, hidden_dropout=0.0, attention_dropout=0.0,
                    self_attn_mask_type="causal", attn_input_format="bshd", params_dtype=torch.bfloat16,
                )
                for number in range(LAYERS)
            )  # fmt: skip
            self.norm = te.LayerNorm(HIDDEN, params_dtype=torch.bfloat16)
            self.head = te.Linear(HIDDEN, VOCABULARY, bias=False, params_dtype=torch.bfloat16)

        def forward(self, tokens, recipe):
            x = self.symbols[tokens] + self.places
            with te.autocast(enabled=recipe is not None, recipe=recipe):
                for layer in self.layers:
                    x = layer(x)
            return self.head(self.norm(x)).float()  # the head stays in bfloat16, as it does in real trainings

    torch.manual_seed(seed)
    return Model()


def outputs_of(model) -> dict:
    """A dict that holds, after each forward pass, what each module with a GEMM gave."""
    import transformer_engine.pytorch as te

    found = {}

    def keep(name):
        def hook(_module, _inputs, output):
            found[name] = (output[0] if isinstance(output, tuple) else output).detach()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, te.Linear | te.LayerNormLinear | te.LayerNormMLP):
            module.register_forward_hook(keep(name.replace("self_attention.", "")))
    return found


def distance(y, reference) -> float:
    """The norm of the difference over that of the reference."""
    y, reference = y.double(), reference.double()
    return float((y - reference).norm() / reference.norm())


# ---------------------------------------------------------------- a run


def nudged(model) -> None:
    """Moves one weight by one ulp of bfloat16."""
    import torch

    weight = model.layers[0].self_attention.layernorm_qkv.query_weight.data
    weight.view(-1)[:1].view(torch.int16).add_(1)


def train(name: str, arguments: argparse.Namespace, seed: int, reference: list[dict] | None) -> tuple[dict, list[dict]]:
    """A run's record and, of each step, the outputs of its layers; ``reference`` has those of the BF16 run."""
    import torch
    from fp8lab.te import active_device
    from transformer_engine.common import recipe as recipes
    from transformer_engine.pytorch.optimizers import FusedAdam
    from transformer_engine.pytorch.quantization import FP8GlobalStateManager

    # 1. The same start for every recipe: no state of the run before, the same generator, the same weights.
    FP8GlobalStateManager.reset()
    make = RECIPES[name]
    recipe = make(recipes) if make else None
    model = language_model(seed)
    weights = hashlib.sha256(
        b"".join(one.detach().view(torch.int16).numpy().tobytes() for one in model.parameters())
    ).hexdigest()
    if name == "bf16_nudged":
        nudged(model)
    optimizer = FusedAdam(model.parameters(), lr=RATE, weight_decay=DECAY, master_weights=True)
    latest, outputs = outputs_of(model), []

    # 2. The same batches: places in the text, drawn from the seed.
    letters, nats = text(seed, 1 << 16)
    codes = torch.tensor([ALPHABET.index(one) for one in letters])
    places = random.Random(seed + 1)

    losses, distances, same_weights, seconds = [], [], [], 0.0
    for step in range(1, arguments.steps + 1):
        starts = [places.randrange(len(codes) - LENGTH) for _ in range(BATCH)]
        tokens = torch.stack([codes[one : one + LENGTH + 1] for one in starts])

        # 3. A step. What others do on the machine is not in the time: it is the processor's, on one thread.
        began = time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / WARMUP)
        logits = model(tokens[:, :-1], recipe)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        now = dict(latest)
        loss.backward()
        seconds += time.process_time() - began

        # 4. The same weights in BF16: what the recipe itself changes in this step, not what it changed in steps before.
        if recipe and is_kept(step, arguments):
            with torch.no_grad():
                model(tokens[:, :-1], None)
            same_weights.append({one: distance(y, latest[one]) for one, y in now.items()})

        began = time.process_time()
        optimizer.step()
        optimizer.zero_grad()
        seconds += time.process_time() - began

        losses.append(loss.item())
        outputs.append(now)
        if reference:
            distances.append({one: distance(y, reference[step - 1][one]) for one, y in now.items()})

    # 5. What is written. Losses are float32: hexadecimal has all of their bits.
    record = {
        "device": active_device().name,
        "recipe": name,
        "seed": seed,
        "steps": arguments.steps,
        "weights": weights,
        "nats_of_the_rules": round(nats, 4),
        "cpu_seconds_a_step": round(seconds / arguments.steps, 3),
        "loss": [one.hex() for one in losses],
    }
    kept = [step for step in range(1, arguments.steps + 1) if is_kept(step, arguments)]
    if reference:
        record["first_beyond"] = {str(limit): first_beyond(limit, distances) for limit in arguments.threshold}
        record["distance"] = by_layer([distances[step - 1] for step in kept])
    if same_weights:
        record["distance_at_the_same_weights"] = by_layer(same_weights)
    if reference:
        record["distance_steps"] = kept
    return record, outputs


def first_beyond(limit: float, distances: list[dict]) -> dict[str, int]:
    """The first step at which a layer's distance is above the limit; layers that never are, are left out."""
    found: dict[str, int] = {}
    for step, of_layers in enumerate(distances, 1):
        found |= {
            name: step for name, one in of_layers.items() if not one <= limit and name not in found
        }  # NaN is beyond
    return {name: found[name] for name in distances[0] if name in found}


def is_kept(step: int, arguments: argparse.Namespace) -> bool:
    return step == 1 or step % arguments.every == 0


def by_layer(distances: list[dict]) -> dict:
    return {one: [float(f"{found[one]:.3g}") for found in distances] for one in distances[0]}


# ---------------------------------------------------------------- files


def recipes_of_device() -> list[str]:
    """The names that the device has, as Transformer Engine itself says."""
    from transformer_engine.common import recipe as recipes
    from transformer_engine.pytorch import is_nvfp4_available
    from transformer_engine.pytorch.quantization import check_recipe_support

    found = []
    for name, make in RECIPES.items():
        try:
            if make:
                check_recipe_support(make(recipes))
        except (AssertionError, RuntimeError):
            continue
        if name != "nvfp4" or is_nvfp4_available():  # check_recipe_support does not ask for NVFP4
            found.append(name)
    return found


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def environment() -> dict:
    """What the bits depend on beside the arguments: PyTorch computes attention and the loss as this processor does."""
    import torch

    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability() + " AMX" * torch.cpu._is_amx_tile_supported(),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformer_engine")},
    }


def train_all(arguments: argparse.Namespace) -> None:
    import torch
    from fp8lab.te import active_device

    torch.set_num_threads(1)  # one order of sums, whatever the machine
    out = {"environment": environment(), "commands": [], "runs": []}
    if arguments.out and arguments.out.exists():
        before = json.loads(arguments.out.read_text())
        if before["environment"] != out["environment"]:
            raise SystemExit(f"{arguments.out} is of {before['environment']}, and this is {out['environment']}")
        out = before
    words = ["python", "-m", "fp8lab.te", "--device", active_device().name, Path(sys.argv[0]).name, *sys.argv[1:]]
    out["commands"].append(shlex.join(words))
    available = recipes_of_device()
    wanted = arguments.recipe or available
    if missing := sorted(set(wanted) - set(available)):
        raise SystemExit(f"this device has no recipe {', '.join(missing)}; it has {', '.join(available)}")
    for seed in arguments.seed:
        reference = None
        for name in ["bf16", *(one for one in wanted if one != "bf16")]:
            record, outputs = train(name, arguments, seed, reference)
            reference = reference or outputs
            out["runs"] = [one for one in out["runs"] if key(one) != key(record)] + [record]
            print(
                f"{record['device']:6}{name:14}seed {seed}  loss {final_loss(record):.4f}", file=sys.stderr, flush=True
            )
            if arguments.out:
                arguments.out.write_text(lines_of(out))
    if not arguments.out:
        print(lines_of(out))


def key(record: dict) -> tuple:
    return record["device"], record["recipe"], record["seed"]


def lines_of(document: dict) -> str:
    """JSON with a line for each run, so that a difference of two files shows which run differs."""
    runs = ",\n".join("  " + json.dumps(one, separators=(",", ":")) for one in document["runs"])
    rest = json.dumps({name: value for name, value in document.items() if name != "runs"}, indent=1)
    return f'{rest[:-2]},\n "runs": [\n{runs}\n ]\n}}\n'


# ---------------------------------------------------------------- what the results say


def losses(record: dict) -> list[float]:
    return [float.fromhex(one) for one in record["loss"]]


def final_loss(record: dict) -> float:
    """The mean of the last 20 steps."""
    last = losses(record)[-20:]
    return sum(last) / len(last)


def parted_first(record: dict, threshold: float) -> tuple[str, int] | None:
    """The layer whose output first was farther than the threshold from the BF16 run's, and the step; of several in one
    step, the first that the data meet."""
    return min(record["first_beyond"][str(threshold)].items(), key=lambda one: one[1], default=None)


def row(cells: list) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def table(runs: list[dict], thresholds: list[float]) -> str:
    """Markdown: a line for each run, beside the BF16 run of its device and seed."""
    beyond = [f"first beyond {one}" for one in thresholds]
    titles = ["device", "recipe", "seed", "loss", "beside BF16", *beyond, "CPU seconds a step"]
    text = row(titles) + row(["---"] * len(titles))
    reference = {(one["device"], one["seed"]): final_loss(one) for one in runs if one["recipe"] == "bf16"}
    for one in runs:
        name, loss = one["recipe"], final_loss(one)
        change, first = "", ["" for _ in thresholds]
        if name != "bf16":
            change = f"{loss - reference[one['device'], one['seed']]:+.4f}"
            parted = [parted_first(one, limit) for limit in thresholds]
            first = [f"{found[0]} at {found[1]}" if found else "none" for found in parted]
        seconds = f"{one['cpu_seconds_a_step']:.2f}"
        text += row([one["device"], name, one["seed"], f"{loss:.4f}", change, *first, seconds])
    return text


def table_of_layers(runs: list[dict]) -> str:
    """Markdown: how far each layer's output is from that of the same weights in BF16, in percent, the mean of the steps
    that were kept."""
    layers = list(next(one for one in runs if "distance" in one)["distance"])
    text = row(["device", "recipe", *layers]) + row(["---"] * (2 + len(layers)))
    for one in runs:
        if found := one.get("distance_at_the_same_weights"):
            means = [f"{100 * sum(found[layer]) / len(found[layer]):.1f}" for layer in layers]
            text += row([one["device"], one["recipe"], *means])
    return text


def table_of_steps(runs: list[dict], steps: list[int], layer: str) -> str:
    """Markdown: losses, and how far a layer's output is from that of the BF16 run, in percent, at steps."""
    titles = ["device", "recipe", *(f"loss {one}" for one in steps), *(f"% at {one}" for one in steps)]
    text = row(titles) + row(["---"] * len(titles))
    for one in runs:
        cells = [f"{losses(one)[step - 1]:.3f}" for step in steps]
        if "distance" in one:
            at = dict(zip(one["distance_steps"], one["distance"][layer], strict=True))
            cells += [f"{100 * at[step]:.2g}" for step in steps]
        else:
            cells += ["" for _ in steps]
        text += row([one["device"], one["recipe"], *cells])
    return text


def runs_of(paths: list[Path]) -> list[dict]:
    return [run for path in paths for run in json.loads(path.read_text())["runs"]]


def is_emulated() -> bool:
    import fp8lab.te

    try:
        return bool(fp8lab.te.active_device())
    except RuntimeError:
        return False


def numbers(kind):
    return lambda words: [kind(one) for one in words.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small transformer under FP8 recipes, beside BF16.")
    parser.add_argument("--recipe", type=numbers(str), help=f"of {', '.join(RECIPES)}; all of the device by default")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=numbers(int), default=[1], help="one or several")
    parser.add_argument("--threshold", type=numbers(float), default=[0.1, 0.2, 0.3, 0.5], help="distances to look for")
    parser.add_argument("--every", type=int, default=1, help="distances are written of every so many steps")
    parser.add_argument("--out", type=Path, help="a file that gets the runs, beside those that it has of others")
    parser.add_argument("--table", type=Path, nargs="+", help="prints a table of these files, and trains nothing")
    arguments = parser.parse_args()
    if not arguments.table and is_emulated():
        train_all(arguments)
    else:  # without a device, what was trained before is shown
        print(table(runs_of(arguments.table or sorted(RESULTS.glob("*.json"))), arguments.threshold), end="")


if __name__ == "__main__":
    main()
