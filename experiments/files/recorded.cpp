// SPDX-License-Identifier: Apache-2.0
#include "files/recorded.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "files/recorded_groups.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

/// A text that is a hexadecimal number of at most so many bits.
std::uint32_t word_of(std::string_view hex, int bits) {
  std::uint32_t word = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), word, 16);
  if (error != std::errc() || end != hex.data() + hex.size() || (std::uint64_t{word} >> bits) != 0) {
    throw std::invalid_argument(printable(hex) + " is not a hexadecimal word of " + std::to_string(bits) + " bits");
  }
  return word;
}

/// Throws where the model does not multiply these.
void check_operands(const MmaModel& model, std::initializer_list<Format> formats) {
  for (const Format& format : formats) {
    if (std::ranges::find(model.operands, format) != model.operands.end()) continue;
    throw std::invalid_argument(std::string(model.name) + " does not take " + format_name(format));
  }
}

/// Appends codes of two digits each; there must be `count`.
template <typename Code>
void append_codes(std::vector<Code>& codes, std::string_view hex, std::size_t count) {
  if (hex.size() != 2 * count) {
    throw std::invalid_argument(printable(hex) + " has " + std::to_string(hex.size()) + " digits, not " +
                                std::to_string(2 * count));
  }
  for (std::size_t i = 0; i < hex.size(); i += 2) codes.push_back(static_cast<Code>(word_of(hex.substr(i, 2), 8)));
}

/// Rows [a, b, c, d], with scales [a, b, scale_a, scale_b, c, d], of one instruction.
RecordedDots dots_of(std::string name, const MmaModel& model, const Format& a, const Format& b, const Rows& rows) {
  check_operands(model, {a, b});
  RecordedDots set{
      std::move(name), model, {.format_a = a, .format_b = b, .k = static_cast<std::size_t>(model.k())}, {}};
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::vector<std::string_view> fields = rows.fields(row, model.scales ? 6 : 4);
    append_codes(set.dots.a, fields[0], set.dots.k);
    append_codes(set.dots.b, fields[1], set.dots.k);
    if (model.scales) {
      const std::size_t blocks = set.dots.k / static_cast<std::size_t>(model.scales->block);
      append_codes(set.dots.scale_a, fields[2], blocks);
      append_codes(set.dots.scale_b, fields[3], blocks);
    }
    set.dots.c.push_back(word_of(fields[fields.size() - 2], model.accumulator().bits()));
    set.d.push_back(word_of(fields.back(), model.accumulator().bits()));
  }
  return set;
}

/// Rows [a, b, fast, promoted].
RecordedChains chains_of(std::string name, const MmaModel& model, const Format& a, const Format& b, const Rows& rows) {
  check_operands(model, {a, b});
  if (model.scales)
    throw std::invalid_argument("chains have no block scales, which " + std::string(model.name) + " needs");
  RecordedChains set{std::move(name), model, {}};
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::vector<std::string_view> fields = rows.fields(row, 4);
    RecordedChain chain{{.format_a = a, .format_b = b, .k = fields[0].size() / 2, .c = {0}}, 0, 0};
    if (chain.dot.k == 0) throw std::invalid_argument("a chain must have at least one product");
    append_codes(chain.dot.a, fields[0], chain.dot.k);
    append_codes(chain.dot.b, fields[1], chain.dot.k);
    chain.fast = word_of(fields[2], 32);
    chain.promoted = word_of(fields[3], 32);
    set.chains.push_back(std::move(chain));
  }
  return set;
}

Format format_of(const std::string& name) { return find_format(name).format; }

constexpr std::array<std::string_view, 2> vectors_lists{"groups", "chains"};
constexpr std::array<std::string_view, 4> vectors_texts{"name", "model", "format_a", "format_b"};
constexpr Form vectors_form{"recorded vectors", vectors_lists, vectors_texts, "rows"};

void add_vectors(std::string_view list, const Group& group, Recorded& recorded) {
  const std::string& name = group.texts.at("name");
  const MmaModel& model = find_model(group.texts.at("model"));
  const Format a = format_of(group.texts.at("format_a"));
  const Format b = format_of(group.texts.at("format_b"));
  if (list == "chains") {
    recorded.chains.push_back(chains_of(name, model, a, b, group.rows));
  } else {
    recorded.sets.push_back(dots_of(name, model, a, b, group.rows));
  }
}

/// The model of a path, with the accumulator that `cd` names.
const MmaModel& model_of_path(std::string_view path, std::string_view cd) {
  struct Named {
    std::string_view name, model;
  };
  constexpr std::array paths{Named{"sm89.mma.k32", "ada_mma_fp8"}, Named{"sm90a.wgmma.k32", "hopper_wgmma_fp8"},
                             Named{"sm90.sm100.mma_sync_lowered.k32", "hopper_mma_sync_fp8"}};
  constexpr std::array accumulators{Named{"f32", ""}, Named{"f16", "_f16"}};
  return find_model(std::string(find_named(paths, "path of an instruction", path).model) +
                    std::string(find_named(accumulators, "cd", cd).model));
}

constexpr std::array<std::string_view, 1> gpu_rows_lists{"groups"};
constexpr std::array<std::string_view, 4> gpu_rows_texts{"gpu", "fmt", "cd", "model"};
constexpr Form gpu_rows_form{"rows measured on GPUs", gpu_rows_lists, gpu_rows_texts, "cases"};

void add_gpu_rows(std::string_view /*list*/, const Group& group, Recorded& recorded) {
  const Format format = format_of(group.texts.at("fmt"));
  const MmaModel& model = model_of_path(group.texts.at("model"), group.texts.at("cd"));
  recorded.sets.push_back(
      dots_of(group.texts.at("gpu") + " " + format_name(format), model, format, format, group.rows));
}

template <typename Add>
Recorded read_recorded(const fs::path& path, const Form& form, const Add& add) {
  const DefaultEnvironment environment;
  const StoredFile file(path);
  Recorded recorded;
  recorded.source =
      read_groups(file, form, [&](std::string_view list, const Group& group) { add(list, group, recorded); });
  if (recorded.sets.empty() && recorded.chains.empty()) file.fail("it has no rows");
  return recorded;
}

}  // namespace

Recorded read_vectors(const fs::path& path) { return read_recorded(path, vectors_form, add_vectors); }
Recorded read_gpu_rows(const fs::path& path) { return read_recorded(path, gpu_rows_form, add_gpu_rows); }

}  // namespace fp8lab::experiments
