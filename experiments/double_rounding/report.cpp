// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>

#include "double_rounding/double_rounding.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/report.hpp"

namespace fp8lab::experiments {
namespace {

double share_of(const Chain& chain, const DoubleRoundingResult& result) {
  return static_cast<double>(chain.count) / static_cast<double>(result.size);
}

std::string table_text(const DoubleRoundingResult& result, const TextStyle& style) {
  std::vector<std::vector<std::string>> rows{
      {"format", "via", "rounding to it", "codes that differ", "share", "toward zero", "away"}};
  for (const Chain& chain : result.chains) {
    rows.push_back({chain.format.name, chain.via.name, std::string(name_of(chain.via_rounding)),
                    std::to_string(chain.count), formatted("%.4f %%", 100 * share_of(chain, result)),
                    std::to_string(chain.toward_zero), std::to_string(chain.count - chain.toward_zero)});
  }
  return draw_table(rows, style);
}

std::string examples_text(const Chain& chain) {
  constexpr std::size_t most = 2;
  std::string text = "  " + chain.format.name + " via " + chain.via.name + ", " +
                     std::string(name_of(chain.via_rounding)) + (chain.first.empty() ? ": none\n" : ":\n");
  const auto value = [&](std::uint8_t code) {
    return formatted("%.9g (code %02X)", static_cast<double>(decode(chain.format.format, code)), code);
  };
  for (std::size_t i = 0; i < std::min(most, chain.first.size()); ++i) {
    const auto& [input, direct, via] = chain.first[i];
    text += formatted("    %.9g (%08X) -> ", static_cast<double>(input), std::bit_cast<std::uint32_t>(input));
    text += value(direct) + " directly, " + value(via) + " that way\n";
  }
  return text;
}

struct JsonOfInputs {
  Json operator()(const EveryFloat& every) const { return {{"low", every.low}, {"high", every.high}}; }
  Json operator()(const UniformDraws& draws) const {
    return {{"uniform", std::vector{draws.low, draws.high}}, {"size", draws.size}, {"seed", draws.seed}};
  }
};

Json json_of(const DoubleRoundingArguments& arguments) {
  Json json = std::visit(JsonOfInputs{}, arguments.inputs);
  for (const char* list : {"via_roundings", "via", "formats"}) json[list] = Json::array();
  for (const ChosenFormat& format : arguments.formats) json["formats"].push_back(format.name);
  for (const ChosenFormat& via : arguments.vias) json["via"].push_back(via.name);
  for (const Rounding rounding : arguments.via_roundings) json["via_roundings"].push_back(name_of(rounding));
  return json;
}

/// A row a chain; `examples`: a row an input.
std::string csv_of(const DoubleRoundingResult& result, bool examples) {
  TextStream csv;
  csv.precision(std::numeric_limits<double>::max_digits10);
  csv << "format,via,via_rounding," << (examples ? "input,direct_code,via_code\n" : "count,share,toward_zero,away\n");
  for (const Chain& chain : result.chains) {
    TextStream names;
    names << csv_field(chain.format.name) << ',' << csv_field(chain.via.name) << ',' << name_of(chain.via_rounding);
    if (!examples) {
      csv << names.str() << ',' << chain.count << ',' << share_of(chain, result) << ',' << chain.toward_zero << ','
          << chain.count - chain.toward_zero << '\n';
      continue;
    }
    for (const auto& [input, direct, via] : chain.first) {
      csv << names.str() << ',' << input << ',' << int{direct} << ',' << int{via} << '\n';
    }
  }
  return csv.str();
}

}  // namespace

std::string to_json(const DoubleRoundingResult& result) {
  const DefaultEnvironment environment;
  Json json{{"inputs", result.inputs}, {"size", result.size}, {"chains", Json::array()}};
  for (const Chain& chain : result.chains) {
    Json first = Json::array();
    for (const auto& [input, direct, via] : chain.first) {
      first.push_back({{"input", input}, {"direct_code", direct}, {"via_code", via}});
    }
    json["chains"].push_back({{"format", chain.format.name},
                              {"via", chain.via.name},
                              {"via_rounding", name_of(chain.via_rounding)},
                              {"count", chain.count},
                              {"share", share_of(chain, result)},
                              {"toward_zero", chain.toward_zero},
                              {"away", chain.count - chain.toward_zero},
                              {"first", first}});
  }
  return text_of(json_of_result("double_rounding", json_of(result.arguments), json));
}

std::vector<std::string> double_rounding_files() {
  return {"double_rounding.json", "double_rounding.csv", "examples.csv"};
}

std::vector<std::pair<std::string, std::string>> files_of(const DoubleRoundingResult& result) {
  const DefaultEnvironment environment;
  return {{"double_rounding.json", to_json(result)},
          {"double_rounding.csv", csv_of(result, false)},
          {"examples.csv", csv_of(result, true)}};
}

std::string report_of(const DoubleRoundingResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  std::string text = "Rounding twice: " + std::to_string(result.size) + " inputs, " + result.inputs +
                     "\nEach is cast directly, and by way of a wider format first: how many codes differ?\n\n" +
                     table_text(result, style) + "\nThe first that differ:\n";
  for (const Chain& chain : result.chains) text += examples_text(chain);
  return text +
         "\nHow to read it:\n"
         "  The first rounding takes an input onto a tie of the second, or across it. Rounding to\n"
         "  odd instead does not. \"Toward zero\" counts the results that are too small in magnitude:\n"
         "  where all are, the chain is biased.\n";
}

}  // namespace fp8lab::experiments
