// SPDX-License-Identifier: Apache-2.0
#include "files/recorded.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <istream>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <streambuf>
#include <string_view>
#include <utility>

#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

// What a small gzipped file can make of itself is bounded by these.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 26;
constexpr std::size_t most_groups = 1 << 12;
constexpr std::size_t most_rows = 1 << 20;
constexpr std::size_t deepest = 64;

/// A file as it is, or unpacked where it is gzipped, piece by piece.
class Unpacked final : public std::streambuf {
 public:
  explicit Unpacked(const StoredFile& file) {
    const int own = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
    if (own < 0) throw std::runtime_error(std::strerror(errno));
    file_.reset(gzdopen(own, "rb"));
    if (file_) return;
    ::close(own);
    throw std::bad_alloc();
  }

 protected:
  int_type underflow() override {
    const int count = gzread(file_.get(), room_.data(), static_cast<unsigned>(room_.size()));
    if (!std::cmp_equal(count, room_.size())) check();
    total_ += static_cast<std::uint64_t>(std::max(count, 0));
    if (total_ > most_bytes) throw std::runtime_error("it has more than 2^26 bytes of JSON, the most that is read");
    setg(room_.data(), room_.data(), room_.data() + std::max(count, 0));
    return count > 0 ? traits_type::to_int_type(*gptr()) : traits_type::eof();
  }

 private:
  void check() const {
    int error = Z_OK;
    std::string reason = gzerror(file_.get(), &error);
    reason.erase(0, reason.find(": ") + 2);  // its name for the file
    if (error == Z_MEM_ERROR) throw std::bad_alloc();
    if (error == Z_ERRNO) throw std::runtime_error(std::strerror(errno));
    if (error == Z_BUF_ERROR) throw std::runtime_error("it ends too early");
    if (error != Z_OK) throw std::runtime_error("it is not a complete gzip file (" + reason + ")");
  }

  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::unique_ptr<gzFile_s, Close> file_;
  std::uint64_t total_ = 0;
  std::array<char, std::size_t{1} << 16> room_;
};

/// The JSON is not what was asked for.
struct WrongForm : std::exception {};

/// Rows of texts.
class Rows {
 public:
  void begin_row() { first_.push_back(static_cast<std::uint32_t>(ends_.size())); }
  void add(std::string_view field) {
    text_ += field;
    ends_.push_back(static_cast<std::uint32_t>(text_.size()));
  }
  [[nodiscard]] std::size_t size() const { return first_.size(); }
  /// The fields of a row, of which there must be `count`.
  [[nodiscard]] std::vector<std::string_view> fields(std::size_t row, std::size_t count) const {
    const std::size_t end = row + 1 < first_.size() ? first_[row + 1] : ends_.size();
    const std::size_t has = end - first_[row];
    if (has != count) {
      throw std::invalid_argument("a row has " + std::to_string(has) + " fields, not " + std::to_string(count));
    }
    std::vector<std::string_view> fields;
    for (std::size_t i = first_[row]; i < end; ++i) {
      const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
      fields.push_back(std::string_view(text_).substr(begin, ends_[i] - begin));
    }
    return fields;
  }

 private:
  std::string text_;                  // of all fields; at most 2^26 bytes, so that 32 bits count them
  std::vector<std::uint32_t> ends_;   // of each field, in the text
  std::vector<std::uint32_t> first_;  // field of each row
};

/// A group of rows with what is said about them.
struct Group {
  std::map<std::string, std::string, std::less<>> texts;
  Rows rows;
  bool has_rows = false;
};

/// Where the texts and rows of a kind of file stand.
struct Form {
  std::string_view kind;
  std::span<const std::string_view> lists;  ///< of groups
  std::span<const std::string_view> texts;  ///< of a group
  std::string_view rows;                    ///< of a group
};

/// Follows the parser through {"source": "...", "groups": [{"model": "...", "rows": [["38", ...], ...]}, ...], ...}. A
/// group is handed on when it ends; what has another key is skipped, and nothing of it kept.
class RowsListener final : public nlohmann::json::json_sax_t {
 public:
  /// take(list, group) gets every group.
  using Take = std::function<void(std::string_view, const Group&)>;
  RowsListener(const Form& form, Take take) : form_(form), take_(std::move(take)) {}

  std::optional<std::string> source;
  std::vector<std::string_view> lists;  ///< that were there

  bool start_object(std::size_t /*unknown*/) override {
    return begin(Place::start, Place::file, Place::list, Place::group);
  }
  bool start_array(std::size_t /*unknown*/) override {
    if (place_ == Place::rows_expected) {
      if (group_.has_rows) throw WrongForm();
      group_.has_rows = true;
    }
    if (place_ == Place::rows) {
      if (++row_count_ > most_rows) throw std::runtime_error("it has more than 2^20 rows, the most that are read");
      group_.rows.begin_row();
    }
    if (place_ == Place::rows) {
      place_ = Place::row;
      return true;
    }
    return begin(Place::list_expected, Place::list, Place::rows_expected, Place::rows);
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(std::string& text) override {
    if (skipped_ > 0) return true;
    const auto is = [&](std::string_view name) { return name == text; };
    if (place_ == Place::file) {
      const auto list = std::ranges::find_if(form_.lists, is);
      place_ = Place::other;
      if (text == "source") place_ = Place::source;
      if (list == form_.lists.end()) return true;
      if (std::ranges::find(lists, *list) != lists.end()) throw WrongForm();
      lists.push_back(*list);
      place_ = Place::list_expected;
    } else {
      place_ = text == form_.rows ? Place::rows_expected : Place::other_of_group;
      if (std::ranges::any_of(form_.texts, is)) {
        place_ = Place::text;
        key_ = text;
      }
    }
    return true;
  }
  bool string(std::string& text) override {
    if (place_ == Place::row) {
      group_.rows.add(text);
    } else if (place_ == Place::source) {
      if (source) throw WrongForm();
      source = std::move(text);
      place_ = Place::file;
    } else if (place_ == Place::text) {
      if (!group_.texts.emplace(key_, std::move(text)).second) throw WrongForm();
      place_ = Place::group;
    } else {
      return value();
    }
    return true;
  }
  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(std::int64_t /*value*/) override { return value(); }
  bool number_unsigned(std::uint64_t /*value*/) override { return value(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return value(); }
  bool binary(nlohmann::json::binary_t& /*bytes*/) override { return value(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    throw std::runtime_error("it is not JSON, or a part of it is missing");
  }

 private:
  /// What is being read: within the file, a list of groups, a group, its rows, one of them; or the value of a key.
  enum class Place : std::uint8_t {
    start,
    file,
    source,
    other,
    list_expected,
    list,
    group,
    text,
    other_of_group,
    rows_expected,
    rows,
    row
  };

  /// An object or array: from one place to the next, from another to its next, or into what is skipped.
  bool begin(Place from, Place to, Place other_from, Place other_to) {
    if (skipped_ > 0 || place_ == Place::other || place_ == Place::other_of_group) {
      if (++skipped_ > deepest) throw WrongForm();
    } else if (place_ == from) {
      place_ = to;
    } else if (place_ == other_from) {
      place_ = other_to;
      if (other_to == Place::group && ++group_count_ > most_groups) {
        throw std::runtime_error("it has more than 2^12 groups, the most that are read");
      }
    } else {
      throw WrongForm();
    }
    return true;
  }
  bool end() {
    if (skipped_ > 0) {
      if (--skipped_ == 0) value();
      return true;
    }
    switch (place_) {
      case Place::row: place_ = Place::rows; break;
      case Place::rows: place_ = Place::group; break;
      case Place::list: place_ = Place::file; break;
      case Place::group:
        if (!group_.has_rows || group_.texts.size() != form_.texts.size()) throw WrongForm();
        take_(lists.back(), std::exchange(group_, {}));
        place_ = Place::list;
        break;
      case Place::start:
      case Place::file:
      case Place::source:
      case Place::other:
      case Place::list_expected:
      case Place::text:
      case Place::other_of_group:
      case Place::rows_expected: break;  // of the file, there is nothing behind
    }
    return true;
  }
  /// A value that is not of the form, which is right where it is skipped.
  bool value() {
    if (skipped_ > 0) return true;
    if (place_ != Place::other && place_ != Place::other_of_group) throw WrongForm();
    place_ = place_ == Place::other ? Place::file : Place::group;
    return true;
  }

  const Form& form_;
  Take take_;
  Place place_ = Place::start;
  std::string key_;
  Group group_;
  std::size_t skipped_ = 0;  // objects and arrays that are open within a value that is skipped
  std::size_t group_count_ = 0;
  std::size_t row_count_ = 0;
};

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

/// Every group of the file, added; and one line with the file's name where something is wrong with it.
template <typename Add>
Recorded read_recorded(const fs::path& path, const Form& form, const Add& add) {
  const DefaultEnvironment environment;
  const StoredFile file(path);
  try {
    Unpacked unpacked(file);
    std::istream text(&unpacked);
    Recorded recorded;
    RowsListener listener(form, [&](std::string_view list, const Group& group) { add(list, group, recorded); });
    nlohmann::json::sax_parse(text, &listener);
    if (!listener.source || listener.lists.size() != form.lists.size()) throw WrongForm();
    if (recorded.sets.empty() && recorded.chains.empty()) throw std::runtime_error("it has no rows");
    recorded.source = *listener.source;
    return recorded;
  } catch (const WrongForm&) {
    file.fail("its JSON does not have the form of " + std::string(form.kind));
  } catch (const std::runtime_error& error) {
    file.fail(error.what());
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

}  // namespace

Recorded read_vectors(const fs::path& path) { return read_recorded(path, vectors_form, add_vectors); }
Recorded read_gpu_rows(const fs::path& path) { return read_recorded(path, gpu_rows_form, add_gpu_rows); }

}  // namespace fp8lab::experiments
