// SPDX-License-Identifier: Apache-2.0
#include "check/kept.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "kit/staging.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

/// JSON has no infinities and NaN.
nlohmann::json number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}
double number_of(const nlohmann::json& x) {
  if (!x.is_string()) return x.get<double>();
  if (x == "nan") return std::numeric_limits<double>::quiet_NaN();
  return x == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

nlohmann::json told(const CheckedTensor& one) {
  nlohmann::json line{{"rows", one.rows},
                      {"columns", one.columns},
                      {"amax", number(one.amax)},
                      {"rms", number(one.rms)},
                      {"not_finite", one.not_finite},
                      {"zero_rows", one.zero_rows},
                      {"recipes", nlohmann::json::array()}};
  if (one.concentration) line["concentration"] = {one.concentration->elements, number(one.concentration->share)};
  for (const CheckedRecipe& with : one.recipes) {
    line["recipes"].push_back({number(with.sqnr_db), number(with.median_row_sqnr_db), number(with.worst_row_sqnr_db),
                               with.worst_row, with.zeroed, with.subnormal, with.blocks, with.clipped_blocks,
                               number(with.bits_per_weight)});
  }
  return line;
}

CheckedTensor tensor_of(const nlohmann::json& line) {
  CheckedTensor one{.name = {}, .own_name = {}, .rows = line.at("rows"), .columns = line.at("columns")};
  one.amax = number_of(line.at("amax"));
  one.rms = number_of(line.at("rms"));
  one.not_finite = line.at("not_finite");
  one.zero_rows = line.at("zero_rows");
  if (const auto few = line.find("concentration"); few != line.end()) {
    one.concentration = Concentration{few->at(0), number_of(few->at(1))};
  }
  for (const nlohmann::json& with : line.at("recipes")) {
    one.recipes.push_back({number_of(with.at(0)), number_of(with.at(1)), number_of(with.at(2)), with.at(3), with.at(4),
                           with.at(5), with.at(6), with.at(7), number_of(with.at(8))});
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
    : stream_(&stream), results_(stream.count()), path_(arguments.checkpoint) {
  if (arguments.resume && !path_) refuse("resume needs checkpoint, the file that tells what is known");
  for (const ChosenRecipe& one : arguments.recipes) recipes_ += one.name + "\n" + describe(one.recipe) + "\n";
  for (std::size_t i = 0; i < stream.count(); ++i) {
    keys_.push_back(key_of(i));
    tensors_.emplace(keys_.back(), i);
  }
  if (!path_) return;
  std::error_code error;
  const bool is_there = fs::exists(*path_, error);
  if (is_there && !arguments.resume) {
    refuse(in_one_line(path_->native()), " is there already; resume goes on from it");
  }
  if (is_there) read(*path_);
}

/// Without the name that the user gave to the file: another process may have been given another.
std::string KeptTensors::key_of(std::size_t tensor) const {
  const SourceTensor& facts = stream_->facts(tensor);
  std::string place = stream_->stamp(tensor);
  if (place.empty()) place = std::to_string(tensor);
  return escaped(facts.own_name + " " + shape_text(facts.shape) + " " + std::string(name_of(facts.type)) + " in " +
                 place);
}

void KeptTensors::read(const fs::path& path) {
  const StoredFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read(0, text));
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    checkpoint();
    std::optional<KeptLine> line = line_in(std::string_view(text).substr(begin, end - begin));
    if (!line) {
      file.fail("byte " + std::to_string(begin) + " begins a line that is none of a checkpoint of fp8lab check");
    }
    if (line->recipes == recipes_) keep(line->key, line->tensor);
  }
  // A line that was cut off is cut away, so that the next one begins a line.
  if (begin < text.size()) fs::resize_file(path, begin);
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
    if (keep(line->key, line->tensor)) write(text);
  }
}

void KeptTensors::write(std::string_view line) const {
  if (!path_) return;
  constexpr int mode = 0666;
  const Descriptor file(::open(path_->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode));
  std::size_t written = 0;
  while (file.get() >= 0 && written < line.size()) {
    const ssize_t some = ::write(file.get(), line.data() + written, line.size() - written);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;
    written += static_cast<std::size_t>(some);
  }
  if (written == line.size()) return;
  throw std::runtime_error("cannot write " + in_one_line(path_->native()) + ": " +
                           std::generic_category().message(errno) +
                           (found_ > 1 ? "; earlier results are kept in it" : ""));
}

}  // namespace fp8lab::experiments
