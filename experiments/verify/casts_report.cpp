// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "fp8lab/formats/environment.hpp"
#include "kit/report.hpp"
#include "verify/casts.hpp"

namespace fp8lab::experiments {
namespace {

std::string hex(std::uint32_t word) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", word);
  return text;
}

std::string cell(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

/// Where the digest stands: what was computed, and whether it is the one that is kept.
std::string digest_text(const VerifyCastsRow& row) {
  if (!row.digest) return "-";
  if (!row.committed) return hex(*row.digest) + " (new)";
  return hex(*row.digest) + (*row.digest == *row.committed ? " =" : " NOT " + hex(*row.committed));
}

std::string checked_text(const VerifyCastsResult& result) {
  std::vector<std::string> names;
  for (const VerifyCastsRow& row : result.rows) {
    for (const EncoderCheck& check : row.checks) {
      if (std::ranges::find(names, check.name) == names.end()) names.push_back(check.name);
    }
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

std::string heading_of(const VerifyCastsArguments& arguments) {
  const std::string floats =
      arguments.all ? std::string("all 2^32 floats")
                    : std::to_string(arguments.chunks) + " x 2^20 floats (seed " + std::to_string(arguments.seed) + ")";
  return "Casts from float32: " + floats + " a combination\n\n" + cell("format", 10) + cell("profile", 25) +
         cell("rounding", 14) + cell("mismatches", 12) + cell("digest", 12) + "time\n";
}

std::string row_text(const VerifyCastsRow& row) {
  const DefaultEnvironment environment;
  std::uint64_t wrong = 0;
  for (const EncoderCheck& check : row.checks) wrong += check.mismatches;
  std::string text = cell(row.format, 10) + cell(row.profile, 25) + cell(row.rounding, 14) +
                     cell(std::to_string(wrong), 12) + cell(digest_text(row), 12);
  if (!row.same_as.empty()) {
    text += "as " + row.same_as;
  } else {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s", row.seconds);
    text += seconds;
  }
  text = trimmed(text) + '\n';
  for (const EncoderCheck& check : row.checks) {
    if (check.mismatches == 0 || !row.same_as.empty()) continue;
    text += "    " + check.name + ": " + std::to_string(check.mismatches) + " wrong";
    if (check.first) {
      text += "; first float " + hex(check.first->input) + " gives " + hex(check.first->got) + ", exact is " +
              hex(check.first->expected);
    }
    text += '\n';
  }
  return text;
}

std::string summary_of(const VerifyCastsResult& result) {
  const DefaultEnvironment environment;
  std::size_t kept = 0;
  std::size_t own = 0;
  for (const VerifyCastsRow& row : result.rows) {
    if (row.committed && row.digest && *row.committed == *row.digest) ++kept;
    if (row.same_as.empty()) ++own;
  }
  std::string text = "\nEach of " + checked_text(result) +
                     " was held, float by float,\nagainst codes found from the exact values of the format: where "
                     "between two neighbours each code begins.\n(cuda header: NVIDIA's, where it has the "
                     "combination. Where a cast has no vector code, every target runs scalar.)\n" +
                     "Combinations: " + std::to_string(result.rows.size()) + ", run: " + std::to_string(own) +
                     "; the others mean the same for their format.\n";
  if (result.arguments.all) {
    text += "Digests are CRC-32 of all codes in the order of the floats' bit patterns; " + std::to_string(kept) +
            " of " + std::to_string(result.rows.size()) + " equal the ones kept in the sources.\n";
  }
  return text + "\n" + std::to_string(result.mismatches()) +
         " mismatches: " + (result.passed() ? "verified\n" : "NOT verified\n");
}

std::string report_of(const VerifyCastsResult& result, const TextStyle& /*style*/) {
  const DefaultEnvironment environment;
  std::string text = heading_of(result.arguments);
  for (const VerifyCastsRow& row : result.rows) text += row_text(row);
  return text + summary_of(result);
}

Files files_of(const VerifyCastsResult& result) { return {{"verify_casts.json", to_json(result)}}; }

std::string to_json(const VerifyCastsResult& result) {
  const DefaultEnvironment environment;
  const Json given{{"all", result.arguments.all}, {"chunks", result.arguments.chunks}, {"seed", result.arguments.seed}};
  Json json{{"passed", result.passed()}, {"mismatches", result.mismatches()}};
  for (const VerifyCastsRow& row : result.rows) {
    Json entry{{"format", row.format},
               {"profile", row.profile},
               {"rounding", row.rounding},
               {"inputs", row.inputs},
               {"seconds", row.seconds}};
    if (!row.same_as.empty()) entry["same_as"] = row.same_as;
    if (row.digest) entry["digest"] = hex(*row.digest);
    if (row.committed) entry["committed"] = hex(*row.committed);
    for (const EncoderCheck& check : row.checks) {
      entry["mismatches"][check.name] = check.mismatches;
      if (check.first) {
        entry["first"][check.name] = {{"input", hex(check.first->input)},
                                      {"got", hex(check.first->got)},
                                      {"expected", hex(check.first->expected)}};
      }
    }
    json["rows"].push_back(entry);
  }
  return text_of(json_of_result("verify casts", given, json));
}

}  // namespace fp8lab::experiments
