// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/audit_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

namespace {

std::string counted_things(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Sentences have names of tensors in them, which may be of any characters: those that move a cursor become blanks.
std::string clean_words(std::string words) {
  std::ranges::replace_if(
      words, [](char letter) { return static_cast<unsigned char>(letter) < ' ' || letter == 0x7F; }, ' ');
  return words;
}

Text intro_of_audit(const Audit& audit, const Checkpoint& quantized, const Recognition& recognition,
                    const Checkpoint* original) {
  std::map<std::string, std::size_t> layouts;
  for (const AuditedWeight& weight : audit.weights) ++layouts[weight.layout];
  std::string words = fmt::format("Auditing {}", quantized.path().string());
  if (original != nullptr) words += fmt::format(" beside {}", original->path().string());
  Text text{"intro", "", {words}};
  std::string of_layouts;
  for (const auto& [layout, count] : layouts) {
    of_layouts += fmt::format("{}{} ({})", of_layouts.empty() ? "" : ", ", layout, counted_things(count, "weight"));
  }
  text.paragraphs.push_back(fmt::format("Layouts: {}; {} in high precision.", of_layouts.empty() ? "none" : of_layouts,
                                        counted_things(recognition.plain.size(), "tensor")));
  for (const UnknownSuffix& unknown : recognition.unknown) {
    text.paragraphs.push_back(fmt::format("Not understood: {} called *{}, {} for instance, of {}.",
                                          counted_things(unknown.count, "tensor"), printable(unknown.suffix),
                                          printable(unknown.example->name), unknown.example->dtype));
  }
  return text;
}

Text verdict_of_audit(const Audit& audit, const Checkpoint* original) {
  Text text{.name = "verdict", .title = "Verdict"};
  std::map<std::string, std::size_t> recipes;
  std::size_t unexplained = 0;
  for (const AuditedWeight& weight : audit.weights) {
    weight.recipe.empty() ? ++unexplained : ++recipes[weight.recipe];
  }
  for (const auto& [recipe, count] : recipes) {
    text.paragraphs.push_back(
        fmt::format("{} made {} of {}: every code and every scale is what it makes of the original.", recipe, count,
                    counted_things(audit.weights.size(), "weight")));
  }
  if (original != nullptr && unexplained > 0) {
    text.paragraphs.push_back(
        fmt::format("No recipe of its layout makes the bytes of {}.", counted_things(unexplained, "weight")));
  }
  if (!audit.without_original.empty()) {
    text.paragraphs.push_back(fmt::format("{} without an original of that name and size, {} the first.",
                                          counted_things(audit.without_original.size(), "weight"),
                                          printable(audit.without_original.front())));
  }
  if (audit.findings.empty()) {
    text.paragraphs.emplace_back(original == nullptr
                                     ? "Nothing is wrong that the files alone show. Damage that codes and scales hide "
                                       "shows beside the original: --original MODEL."
                                     : "Nothing is wrong.");
  } else {
    std::set<std::string> tensors;
    for (const CheckpointFinding& finding : audit.findings) tensors.insert(finding.tensor);
    text.paragraphs.push_back(fmt::format("{} about {}.", counted_things(audit.findings.size(), "finding"),
                                          counted_things(tensors.size(), "tensor or file")));
  }
  return text;
}

Table weights_table_of(const Audit& audit) {
  const bool is_long = audit.weights.size() > 60;
  const auto text_or_none = [](const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); };
  return tabulate(audit.weights, {.name = "weights", .title = "Weights", .detail = is_long})
      .column({"weight"}, [](const AuditedWeight& one) { return in_one_line(one.name); })
      .column({"layout"}, &AuditedWeight::layout)
      .column({.name = "elements", .detail = true}, &AuditedWeight::elements)
      .column({.name = "recipe", .title = "made by"},
              [&](const AuditedWeight& one) { return text_or_none(one.recipe); })
      .column({.name = "nearest", .detail = true}, [&](const AuditedWeight& one) { return text_or_none(one.nearest); })
      .column({.name = "codes_differing", .title = "other codes"},
              [](const AuditedWeight& one) {
                return one.nearest.empty() ? std::nullopt : std::optional(one.codes_differing);
              })
      .column({.name = "scales_differing", .title = "other scales"},
              [](const AuditedWeight& one) {
                return one.nearest.empty() ? std::nullopt : std::optional(one.scales_differing);
              })
      .column({.name = "sqnr_db", .title = "SQNR", .unit = "dB", .notation = Notation::fixed, .digits = 2},
              &AuditedWeight::sqnr_db)
      .column({.name = "loss_db", .title = "lost", .unit = "dB", .notation = Notation::fixed, .digits = 2},
              &AuditedWeight::loss_db)
      .column({.name = "verdict", .detail = true}, [](const AuditedWeight& one) { return clean_words(one.verdict); });
}

Table warnings_table_of(const Audit& audit) {
  return tabulate(audit.misreads, {.name = "warnings", .title = "What loaders misread, though it is right"})
      .column({"tensor"}, [](const Misread& one) { return in_one_line(one.tensor); })
      .column({"loaders"}, &Misread::loaders)
      .column({"words"}, &Misread::words);
}

}  // namespace

Table findings_table_of(const std::vector<CheckpointFinding>& findings) {
  return tabulate(findings, {.name = "findings", .title = "What is wrong", .layout = TableLayout::records})
      .column({"tensor"}, [](const CheckpointFinding& one) { return in_one_line(one.tensor); })
      .column({"kind"}, [](const CheckpointFinding& one) { return name_of(one.kind); })
      .column({"words"}, [](const CheckpointFinding& one) { return clean_words(one.words); })
      .column({"where"},
              [](const CheckpointFinding& one) { return one.where.empty() ? std::nullopt : std::optional(one.where); })
      .column({.name = "loss_db", .title = "lost", .unit = "dB", .notation = Notation::fixed, .digits = 2},
              &CheckpointFinding::loss_db);
}

Document document_of(const Audit& audit, const Checkpoint& quantized, const Recognition& recognition,
                     const Checkpoint* original) {
  Document document;
  document.sections.emplace_back(intro_of_audit(audit, quantized, recognition, original));
  document.sections.emplace_back(verdict_of_audit(audit, original));
  if (!audit.findings.empty()) document.sections.emplace_back(findings_table_of(audit.findings));
  if (!audit.weights.empty()) document.sections.emplace_back(weights_table_of(audit));
  if (!audit.misreads.empty()) document.sections.emplace_back(warnings_table_of(audit));
  document.in_part = audit.weights.empty() && recognition.incomplete.empty();  // nothing of it has a known layout
  document.passed = document.in_part || audit.findings.empty();
  return document;
}

}  // namespace fp8lab::experiments
