// SPDX-License-Identifier: Apache-2.0
// What MMA-Sim computed, as tests/vectors/mma_sim.json has it.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::tests {

using Codes = std::vector<std::uint32_t>;
using Scales = std::vector<std::uint8_t>;

/// One recorded instruction.
struct Vector {
  Codes a, b;
  Scales scale_a = {}, scale_b = {};
  std::uint32_t c, d;
};

struct Group {
  std::string name, model;
  Format format_a, format_b;
  std::vector<Vector> vectors;
};

/// K of several instructions, from an accumulator of zero.
struct Chain {
  std::string model;
  Format format_a, format_b;
  Codes a, b;
  std::uint32_t fast;      ///< the accumulator after all of them
  std::uint32_t promoted;  ///< the binary32 sum of accumulators restarted every 128
};

inline std::uint32_t word_of(const std::string& hex) {
  return static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16));
}

inline Codes codes_of(const std::string& hex) {
  Codes codes;
  for (std::size_t i = 0; i < hex.size(); i += 2) codes.push_back(word_of(hex.substr(i, 2)));
  return codes;
}

inline Format format_of(const nlohmann::json& name) { return find_format(name.get<std::string>()).format; }

inline const nlohmann::json& recorded() {
  static const nlohmann::json file = nlohmann::json::parse(std::ifstream(FP8LAB_VECTORS "/mma_sim.json"));
  return file;
}

inline Vector vector_of(const std::vector<std::string>& row) {
  Vector vector{.a = codes_of(row.at(0)), .b = codes_of(row.at(1)), .c = 0, .d = 0};
  if (row.size() == 6) {
    for (const std::uint32_t code : codes_of(row[2])) vector.scale_a.push_back(static_cast<std::uint8_t>(code));
    for (const std::uint32_t code : codes_of(row[3])) vector.scale_b.push_back(static_cast<std::uint8_t>(code));
  }
  vector.c = word_of(row[row.size() - 2]);
  vector.d = word_of(row.back());
  return vector;
}

inline const std::vector<Group>& groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> result;
    for (const nlohmann::json& entry : recorded().at("groups")) {
      Group group{
          entry.at("name"), entry.at("model"), format_of(entry.at("format_a")), format_of(entry.at("format_b")), {}};
      for (const nlohmann::json& row : entry.at("rows")) group.vectors.push_back(vector_of(row));
      result.push_back(std::move(group));
    }
    return result;
  }();
  return all;
}

inline const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = [] {
    std::vector<Chain> result;
    for (const nlohmann::json& entry : recorded().at("chains")) {
      for (const nlohmann::json& row : entry.at("rows")) {
        result.push_back({entry.at("model"), format_of(entry.at("format_a")), format_of(entry.at("format_b")),
                          codes_of(row.at(0)), codes_of(row.at(1)), word_of(row.at(2)), word_of(row.at(3))});
      }
    }
    return result;
  }();
  return all;
}

}  // namespace fp8lab::tests
