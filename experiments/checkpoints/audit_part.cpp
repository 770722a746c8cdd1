// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/audit_part.hpp"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "kit/kept_lines.hpp"

namespace fp8lab::experiments {
namespace {

using PartJson = nlohmann::json;

/// JSON has no bytes that are no text, which names of tensors may have: each byte above 7F is written as the character
/// of its number.
PartJson json_text(std::string_view bytes) {
  std::string text;
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < 0x80) {
      text += letter;
    } else {
      text += static_cast<char>(0xC0U | byte >> 6U);
      text += static_cast<char>(0x80U | (byte & 0x3FU));
    }
  }
  return text;
}
std::string bytes_of_text(const PartJson& json) {
  const auto& text = json.get_ref<const std::string&>();
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80 || i + 1 == text.size()) {
      bytes += text[i];
    } else {
      bytes += static_cast<char>(byte << 6U | (static_cast<unsigned char>(text[++i]) & 0x3FU));
    }
  }
  return bytes;
}

template <typename T>
PartJson json_or_null(const std::optional<T>& value) {
  return value ? PartJson(*value) : PartJson();
}
std::optional<std::uint64_t> optional_of(const PartJson& json) {
  if (json.is_null()) return {};
  return json.get<std::uint64_t>();
}

FindingKind kind_of(const PartJson& json) { return find_value<FindingKind>("kind", json.get<std::string>()); }

PartJson json_of_matrix(const MatrixPart& one) {
  PartJson json{{"expert", one.expert},
                {"hashes", {one.codes, one.scales}},
                {"expected", {json_or_null(one.expected_codes), json_or_null(one.expected_scales)}},
                {"is", {one.is_zero, one.is_right, one.is_accused}},
                {"writer", json_text(one.writer)},
                {"differing", {json_or_null(one.codes_differing), one.scales_differing}},
                {"loss", kept_number(one.loss_db)}};
  if (one.explanation) {
    json["explanation"] = {name_of(one.explanation->kind), json_text(one.explanation->words),
                           json_text(one.explanation->where)};
  }
  return json;
}

MatrixPart matrix_of(const PartJson& json) {
  MatrixPart one{.expert = json.at("expert")};
  one.codes = json.at("hashes").at(0);
  one.scales = json.at("hashes").at(1);
  one.expected_codes = optional_of(json.at("expected").at(0));
  one.expected_scales = optional_of(json.at("expected").at(1));
  one.is_zero = json.at("is").at(0);
  one.is_right = json.at("is").at(1);
  one.is_accused = json.at("is").at(2);
  one.writer = bytes_of_text(json.at("writer"));
  one.codes_differing = optional_of(json.at("differing").at(0));
  one.scales_differing = json.at("differing").at(1);
  one.loss_db = number_kept(json.at("loss"));
  if (const auto why = json.find("explanation"); why != json.end()) {
    one.explanation = Explanation{kind_of(why->at(0)), bytes_of_text(why->at(1)), bytes_of_text(why->at(2))};
  }
  return one;
}

}  // namespace

PartJson json_of(const AuditPart& part) {
  const AuditedWeight& row = part.row;
  PartJson json{{"recipe", json_text(row.recipe)},
                {"nearest", json_text(row.nearest)},
                {"differing", {row.codes_differing, row.scales_differing}},
                {"sqnr", kept_number(row.sqnr_db)},
                {"loss", kept_number(row.loss_db)},
                {"verdict", json_text(row.verdict)},
                {"without", part.is_without_original},
                {"findings", PartJson::array()},
                {"misreads", PartJson::array()},
                {"matrices", PartJson::array()}};
  for (const CheckpointFinding& one : part.findings) {
    json["findings"].push_back({json_text(one.tensor), name_of(one.kind), json_text(one.words), json_text(one.where),
                                kept_number(one.loss_db)});
  }
  for (const Misread& one : part.misreads) {
    json["misreads"].push_back({json_text(one.tensor), json_text(one.loaders), json_text(one.words)});
  }
  for (const MatrixPart& one : part.matrices) json["matrices"].push_back(json_of_matrix(one));
  return json;
}

AuditPart audit_part_of(const PartJson& json, AuditedWeight row) {
  AuditPart part{.row = std::move(row)};
  part.row.recipe = bytes_of_text(json.at("recipe"));
  part.row.nearest = bytes_of_text(json.at("nearest"));
  part.row.codes_differing = json.at("differing").at(0);
  part.row.scales_differing = json.at("differing").at(1);
  part.row.sqnr_db = number_kept(json.at("sqnr"));
  part.row.loss_db = number_kept(json.at("loss"));
  part.row.verdict = bytes_of_text(json.at("verdict"));
  part.is_without_original = json.at("without");
  for (const PartJson& one : json.at("findings")) {
    part.findings.push_back({bytes_of_text(one.at(0)), kind_of(one.at(1)), bytes_of_text(one.at(2)),
                             bytes_of_text(one.at(3)), number_kept(one.at(4))});
  }
  for (const PartJson& one : json.at("misreads")) {
    part.misreads.push_back({bytes_of_text(one.at(0)), bytes_of_text(one.at(1)), bytes_of_text(one.at(2))});
  }
  for (const PartJson& one : json.at("matrices")) part.matrices.push_back(matrix_of(one));
  return part;
}

}  // namespace fp8lab::experiments
