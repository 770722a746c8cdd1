// SPDX-License-Identifier: Apache-2.0
// A file to which a run adds a line for each result as soon as it is known, and from which the next run goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fp8lab::experiments {

class KeptLines {
 public:
  /// Without a path nothing is kept. Throws std::invalid_argument where the file is there and `resume` is not given, or
  /// `resume` without a path.
  KeptLines(std::optional<std::filesystem::path> path, bool resume);

  /// Calls use(line, without its line break) for each line that is there. A last line that was cut off is cut away, so
  /// that the next one begins a line. Throws std::runtime_error where use() says false: it is no line of this file.
  void read(const std::function<bool(std::string_view)>& use) const;
  /// Adds a line, with its line break. Throws std::runtime_error; `has_earlier` says that there are others.
  void write(std::string_view line, bool has_earlier) const;

 private:
  std::optional<std::filesystem::path> path_;
};

/// A number in a line: JSON has no infinities and NaN, which are texts.
[[nodiscard]] nlohmann::json kept_number(double x);
/// Throws nlohmann::json::exception where it is none.
[[nodiscard]] double number_kept(const nlohmann::json& x);

}  // namespace fp8lab::experiments
