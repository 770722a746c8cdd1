# SPDX-License-Identifier: Apache-2.0
"""A tiny Llama of Hugging Face's transformers trains under accelerate's Accelerator in FP8: run by test_programs.py under
``python -m fp8lab.te``. Prints one JSON line."""

import json

import torch
from accelerate import Accelerator
from accelerate.utils import TERecipeKwargs
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(7)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64,
    )
)  # fmt: skip
linear = [name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)]
handler = TERecipeKwargs(amax_history_len=4, amax_compute_algo="max")
accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[handler])
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
modules = {name: one for name, one in model.named_modules() if type(one).__module__.startswith("transformer_engine")}
tokens = torch.randint(0, 64, (4, 32), generator=torch.Generator().manual_seed(1))
losses = []
for _ in range(6):
    loss = model(input_ids=tokens, labels=tokens).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
in_fp8 = [name for name, one in modules.items() if float(one.fp8_meta["scaling_fwd"].amax_history.max()) > 0]
print(json.dumps({"linear": linear, "converted": list(modules), "in_fp8": in_fp8, "losses": losses}))
