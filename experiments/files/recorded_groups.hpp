// SPDX-License-Identifier: Apache-2.0
// Groups of rows of texts, from JSON that may be gzipped: what all files of recorded results have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "files/stored_file.hpp"

namespace fp8lab::experiments {

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

/// Calls take(list, group) for every group of the file, in its order; returns the file's `source`. Throws
/// std::runtime_error, one line with the file's name, where it cannot be read or is not of that form, or where take()
/// throws std::invalid_argument.
[[nodiscard]] std::string read_groups(const StoredFile& file, const Form& form,
                                      const std::function<void(std::string_view, const Group&)>& take);

}  // namespace fp8lab::experiments
