// SPDX-License-Identifier: Apache-2.0
#include "check/kept.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab::experiments {
namespace {

nlohmann::json told(const CheckedTensor& one) {
  nlohmann::json line{{"rows", one.rows},
                      {"columns", one.columns},
                      {"amax", kept_number(one.amax)},
                      {"rms", kept_number(one.rms)},
                      {"not_finite", one.not_finite},
                      {"zero_rows", one.zero_rows},
                      {"recipes", nlohmann::json::array()}};
  if (one.concentration) line["concentration"] = {one.concentration->elements, kept_number(one.concentration->share)};
  for (const CheckedRecipe& with : one.recipes) {
    line["recipes"].push_back({kept_number(with.sqnr_db), kept_number(with.median_row_sqnr_db),
                               kept_number(with.worst_row_sqnr_db), with.worst_row, with.zeroed, with.subnormal,
                               with.blocks, with.clipped_blocks, kept_number(with.bits_per_weight)});
  }
  return line;
}

CheckedTensor tensor_of(const nlohmann::json& line) {
  CheckedTensor one{.name = {}, .own_name = {}, .rows = line.at("rows"), .columns = line.at("columns")};
  one.amax = number_kept(line.at("amax"));
  one.rms = number_kept(line.at("rms"));
  one.not_finite = line.at("not_finite");
  one.zero_rows = line.at("zero_rows");
  if (const auto few = line.find("concentration"); few != line.end()) {
    one.concentration = Concentration{few->at(0), number_kept(few->at(1))};
  }
  for (const nlohmann::json& with : line.at("recipes")) {
    one.recipes.push_back({number_kept(with.at(0)), number_kept(with.at(1)), number_kept(with.at(2)), with.at(3),
                           with.at(4), with.at(5), with.at(6), with.at(7), number_kept(with.at(8))});
  }
  return one;
}

/// What a line says, without the names of the tensor.
struct KeptLine {
  std::string key, recipes;
  CheckedTensor tensor;
};
/// None where the text is no line.
std::optional<KeptLine> line_in(std::string_view text) {
  const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
  try {
    return KeptLine{line.at("key"), line.at("recipes"), tensor_of(line.at("tensor"))};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

/// JSON has no bytes that are no text, which names of files may have.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result +=
        c >= ' ' && c <= '~' && c != '\\' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace

KeptTensors::KeptTensors(const CheckArguments& arguments, const TensorStream& stream)
    : stream_(&stream), results_(stream.count()), lines_(arguments.checkpoint, arguments.resume) {
  for (const ChosenRecipe& one : arguments.recipes) recipes_ += one.name + "\n" + describe(one.recipe) + "\n";
  for (std::size_t i = 0; i < stream.count(); ++i) {
    keys_.push_back(key_of(i));
    tensors_.emplace(keys_.back(), i);
  }
  lines_.read([&](std::string_view text) {
    const std::optional<KeptLine> line = line_in(text);
    if (line && line->recipes == recipes_) keep(line->key, line->tensor);
    return line.has_value();
  });
}

/// Without the name that the user gave to the file: another process may have been given another.
std::string KeptTensors::key_of(std::size_t tensor) const {
  const SourceTensor& facts = stream_->facts(tensor);
  std::string place = stream_->stamp(tensor);
  if (place.empty()) place = std::to_string(tensor);
  return escaped(facts.own_name + " " + shape_text(facts.shape) + " " + std::string(name_of(facts.type)) + " in " +
                 place);
}

/// Whether a tensor of the stream was not known before.
bool KeptTensors::keep(const std::string& key, const CheckedTensor& result) {
  bool is_new = false;
  const auto [begin, end] = tensors_.equal_range(key);
  for (auto at = begin; at != end; ++at) {
    std::optional<CheckedTensor>& place = results_[at->second];
    if (place) continue;
    is_new = true;
    const SourceTensor& facts = stream_->facts(at->second);
    place = result;
    place->name = facts.name;
    place->own_name = facts.own_name;
    ++found_;
    elements_ += static_cast<double>(facts.size());
  }
  return is_new;
}

std::string KeptTensors::line_of(std::size_t tensor, const CheckedTensor& result) const {
  return nlohmann::json{{"key", keys_[tensor]}, {"recipes", recipes_}, {"tensor", told(result)}}.dump() + '\n';
}

void KeptTensors::take(std::string_view lines) {
  while (!lines.empty()) {
    const std::string_view text = lines.substr(0, std::min(lines.find('\n'), lines.size() - 1) + 1);
    lines.remove_prefix(text.size());
    std::optional<KeptLine> line = line_in(text);
    if (!line) refuse("a line is no result of a tensor");
    if (!tensors_.contains(line->key)) refuse("it measured what is not asked for: ", line->key);
    if (line->recipes != recipes_) refuse("it measured by other recipes");
    if (keep(line->key, line->tensor)) lines_.write(text, found_ > 1);
  }
}

}  // namespace fp8lab::experiments
