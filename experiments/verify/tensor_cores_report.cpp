// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/targets.hpp"
#include "kit/report.hpp"
#include "verify/tensor_cores.hpp"

namespace fp8lab::experiments {
namespace {

std::string line_of(const std::string& model, const std::string& kind, const std::string& sets,
                    const std::string& compared, const std::string& mismatches) {
  return trimmed(formatted("%-29s %-9s %5s %13s %11s", model.c_str(), kind.c_str(), sets.c_str(), compared.c_str(),
                           mismatches.c_str())) +
         '\n';
}

Json json_of_path(const std::optional<std::string>& path) { return path ? Json(*path) : Json(nullptr); }

Json json_of(const ProductCheck& check) {
  Json json{{"name", check.name}, {"compared", check.compared}, {"mismatches", check.mismatches}};
  if (check.first) {
    json["first"] = {{"index", check.first->index},
                     {"got", formatted("%08x", check.first->got)},
                     {"expected", formatted("%08x", check.first->expected)}};
  }
  return json;
}

}  // namespace

std::string heading_of(const VerifyTensorCoresArguments& arguments) {
  std::string names;
  for (const std::string_view name : targets()) {
    if (name != "scalar") names += (names.empty() ? "" : ", ") + std::string(name);
  }
  std::string text = "Tensor cores, bit for bit. targets: at least " + std::to_string(arguments.dots) +
                     " dot products a model (seed " + std::to_string(arguments.seed) + "),\n" + names +
                     " against the scalar code\n";
  if (arguments.vectors) {
    text += "vectors, chains: " + printable(*arguments.vectors) + ", under MMA-Sim's zero rule; chains also promoted\n";
  }
  if (arguments.rows) text += "GPU rows: " + printable(*arguments.rows) + "\n";
  return text + '\n' + line_of("model", "kind", "sets", "dot products", "mismatches");
}

std::string row_text(const VerifyTensorCoresRow& row) {
  const DefaultEnvironment environment;
  std::string text = line_of(row.model, row.kind, std::to_string(row.checks.size()), std::to_string(row.compared()),
                             std::to_string(row.mismatches()));
  for (const ProductCheck& check : row.checks) {
    if (!check.first) continue;
    text += "    " + check.name + ": " + std::to_string(check.mismatches) + " wrong; first dot product " +
            std::to_string(check.first->index) + " gives " +
            formatted("%08x, expected %08x\n", check.first->got, check.first->expected);
  }
  return text;
}

std::string summary_of(const VerifyTensorCoresResult& result) {
  const DefaultEnvironment environment;
  std::string text = "\n";
  for (const char* kind : {"targets", "vectors", "chains", "GPU rows"}) {
    std::uint64_t models = 0;
    std::uint64_t compared = 0;
    std::uint64_t mismatches = 0;
    for (const VerifyTensorCoresRow& row : result.rows) {
      if (row.kind != kind) continue;
      ++models;
      compared += row.compared();
      mismatches += row.mismatches();
    }
    if (models == 0) continue;
    text += formatted("%-9s %3llu models %13llu dot products %11llu mismatches\n", kind,
                      static_cast<unsigned long long>(models), static_cast<unsigned long long>(compared),
                      static_cast<unsigned long long>(mismatches));
  }
  for (const std::string& source : result.sources) text += "Source: " + printable(source) + "\n";
  return text + "\n" + std::to_string(result.compared()) + " dot products, " + std::to_string(result.mismatches()) +
         " mismatches: " + (result.passed() ? "verified\n" : "NOT verified\n");
}

std::string report_of(const VerifyTensorCoresResult& result, const TextStyle& /*style*/) {
  const DefaultEnvironment environment;
  std::string text = heading_of(result.arguments);
  for (const VerifyTensorCoresRow& row : result.rows) text += row_text(row);
  return text + summary_of(result);
}

Files files_of(const VerifyTensorCoresResult& result) { return {{"verify_tensor_cores.json", to_json(result)}}; }

std::string to_json(const VerifyTensorCoresResult& result) {
  const DefaultEnvironment environment;
  const VerifyTensorCoresArguments& arguments = result.arguments;
  const Json given{{"models", arguments.models},
                   {"dots", arguments.dots},
                   {"seed", arguments.seed},
                   {"vectors", json_of_path(arguments.vectors)},
                   {"rows", json_of_path(arguments.rows)}};
  Json json{{"passed", result.passed()},
            {"compared", result.compared()},
            {"mismatches", result.mismatches()},
            {"sources", result.sources},
            {"rows", Json::array()}};
  for (const VerifyTensorCoresRow& row : result.rows) {
    Json entry{{"model", row.model},
               {"kind", row.kind},
               {"compared", row.compared()},
               {"mismatches", row.mismatches()},
               {"checks", Json::array()}};
    for (const ProductCheck& check : row.checks) entry["checks"].push_back(json_of(check));
    json["rows"].push_back(entry);
  }
  return text_of(json_of_result("verify tensor-cores", given, json));
}

}  // namespace fp8lab::experiments
