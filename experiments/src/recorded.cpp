// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/experiments/recorded.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fp8lab/experiments/tensor_file.hpp"
#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The content of a file, unpacked where it is gzipped.
std::string content_of(const fs::path& path) {
  constexpr std::size_t most = std::size_t{1} << 28;
  errno = 0;
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error(errno != 0 ? std::strerror(errno) : "no memory");
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    const int count = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
    if (text.size() > most) throw std::runtime_error("it has more than 2^28 bytes");
    if (std::cmp_equal(count, piece.size())) continue;
    int error = Z_OK;
    const std::string reason = gzerror(file.get(), &error);
    if (error == Z_ERRNO) throw std::runtime_error(std::strerror(errno));
    if (error == Z_BUF_ERROR) throw std::runtime_error("it ends too early");
    if (error != Z_OK) throw std::runtime_error("it is no whole gzip file (" + reason + ")");
    return text;
  }
}

/// A text that is a hexadecimal number of at most so many bits.
std::uint32_t word_of(std::string_view hex, int bits) {
  std::uint32_t word = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), word, 16);
  if (error != std::errc() || end != hex.data() + hex.size() || (std::uint64_t{word} >> bits) != 0) {
    throw std::invalid_argument(printable(hex) + " is no hexadecimal word of " + std::to_string(bits) + " bits");
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

/// The fields of a row, of which there must be `count`.
std::vector<std::string> fields_of(const Json& row, std::size_t count) {
  auto fields = row.get<std::vector<std::string>>();
  if (fields.size() != count) {
    throw std::invalid_argument("a row has " + std::to_string(fields.size()) + " fields, not " + std::to_string(count));
  }
  return fields;
}

/// Rows [a, b, c, d], with scales [a, b, scale_a, scale_b, c, d], of one instruction.
RecordedDots dots_of(std::string name, const MmaModel& model, const Format& a, const Format& b, const Json& rows) {
  check_operands(model, {a, b});
  RecordedDots set{
      std::move(name), model, {.format_a = a, .format_b = b, .k = static_cast<std::size_t>(model.k())}, {}};
  for (const Json& row : rows) {
    const std::vector<std::string> fields = fields_of(row, model.scales ? 6 : 4);
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
RecordedChains chains_of(std::string name, const MmaModel& model, const Format& a, const Format& b, const Json& rows) {
  check_operands(model, {a, b});
  if (model.scales)
    throw std::invalid_argument("chains have no block scales, which " + std::string(model.name) + " needs");
  RecordedChains set{std::move(name), model, {}};
  for (const Json& row : rows) {
    const std::vector<std::string> fields = fields_of(row, 4);
    RecordedChain chain{{.format_a = a, .format_b = b, .k = fields[0].size() / 2, .c = {0}}, 0, 0};
    append_codes(chain.dot.a, fields[0], chain.dot.k);
    append_codes(chain.dot.b, fields[1], chain.dot.k);
    chain.fast = word_of(fields[2], 32);
    chain.promoted = word_of(fields[3], 32);
    set.chains.push_back(std::move(chain));
  }
  return set;
}

Format format_of(const Json& name) { return find_format(name.get<std::string>()).format; }

Recorded vectors_of(const Json& file) {
  Recorded recorded{file.at("source"), {}, {}};
  for (const Json& group : file.at("groups")) {
    recorded.sets.push_back(dots_of(group.at("name"), find_model(group.at("model").get<std::string>()),
                                    format_of(group.at("format_a")), format_of(group.at("format_b")),
                                    group.at("rows")));
  }
  for (const Json& group : file.at("chains")) {
    recorded.chains.push_back(chains_of(group.at("name"), find_model(group.at("model").get<std::string>()),
                                        format_of(group.at("format_a")), format_of(group.at("format_b")),
                                        group.at("rows")));
  }
  return recorded;
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

Recorded gpu_rows_of(const Json& file) {
  Recorded recorded{file.at("source"), {}, {}};
  for (const Json& group : file.at("groups")) {
    const Format format = format_of(group.at("fmt"));
    const std::string name = group.at("gpu").get<std::string>() + " " + format_name(format);
    recorded.sets.push_back(
        dots_of(name, model_of_path(group.at("model").get<std::string>(), group.at("cd").get<std::string>()), format,
                format, group.at("cases")));
  }
  return recorded;
}

/// read(JSON of the file), and one line with the file's name where something is wrong with it.
template <typename Read>
Recorded read_recorded(const fs::path& path, std::string_view kind, const Read& read) {
  const auto fail = [&](const std::string& reason) {
    return std::runtime_error("cannot read " + printable(path.native()) + ": " + reason);
  };
  try {
    const std::string text = content_of(path);
    const Json file = Json::parse(text, nullptr, false);
    if (file.is_discarded()) throw std::runtime_error("it is no JSON, or not all of it");
    Recorded recorded = read(file);
    if (recorded.sets.empty() && recorded.chains.empty()) throw std::runtime_error("it has no rows");
    return recorded;
  } catch (const Json::exception&) {
    throw fail("its JSON does not have the form of " + std::string(kind));
  } catch (const std::exception& error) {
    throw fail(error.what());
  }
}

}  // namespace

Recorded read_vectors(const fs::path& path) { return read_recorded(path, "recorded vectors", vectors_of); }
Recorded read_gpu_rows(const fs::path& path) { return read_recorded(path, "rows measured on GPUs", gpu_rows_of); }

}  // namespace fp8lab::experiments
