// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/original_names.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace fp8lab::experiments {

namespace {

/// Parts of names in GGUF files and in Hugging Face's. Source: gguf 0.19.0, gguf/tensor_mapping.py.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> parts{{
    {"token_embd.", "model.embed_tokens."},
    {"output_norm.", "model.norm."},
    {"output.", "lm_head."},
    {".attn_q.", ".self_attn.q_proj."},
    {".attn_k.", ".self_attn.k_proj."},
    {".attn_v.", ".self_attn.v_proj."},
    {".attn_output.", ".self_attn.o_proj."},
    {".ffn_gate.", ".mlp.gate_proj."},
    {".ffn_up.", ".mlp.up_proj."},
    {".ffn_down.", ".mlp.down_proj."},
    {".ffn_gate_exps.", ".mlp.experts.#.gate_proj."},
    {".ffn_up_exps.", ".mlp.experts.#.up_proj."},
    {".ffn_down_exps.", ".mlp.experts.#.down_proj."},
    {"blk.", "model.layers."},
}};

void replace_first(std::string& name, std::string_view from, std::string_view to) {
  if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
}

}  // namespace

std::pair<const StoredTensor*, std::uint64_t> find_original(const Checkpoint& original, const Weight& weight,
                                                            std::uint64_t expert) {
  if (const StoredTensor* tensor = original.find(weight.name)) return {tensor, expert};
  // A stack without a suffix, and one with.
  constexpr std::string_view suffix = ".weight";
  if (const StoredTensor* tensor = original.find(weight.name + std::string(suffix))) return {tensor, expert};
  if (weight.layout->family != Family::gguf) return {nullptr, 0};
  std::string name = weight.name;
  for (const auto& [from, to] : parts) {
    if (from == "output." && !name.starts_with(from)) continue;
    replace_first(name, from, to);
  }
  const bool is_expert = name.find('#') != std::string::npos;
  replace_first(name, "#", fmt::format("{}", expert));
  return {original.find(name), is_expert ? 0 : expert};
}

}  // namespace fp8lab::experiments
