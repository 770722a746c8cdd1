// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/audit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoints/accused.hpp"
#include "checkpoints/audit_part.hpp"
#include "checkpoints/between_weights.hpp"
#include "checkpoints/file_findings.hpp"
#include "checkpoints/name_findings.hpp"
#include "checkpoints/weight_audit.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/kept_lines.hpp"

namespace fp8lab::experiments {

namespace {

using LineJson = nlohmann::json;

/// The names, sizes and times of files: two processes that see the same ones see the same model.
void stamp_files(const Checkpoint& checkpoint, std::string& stamp) {
  for (const std::filesystem::path& file : checkpoint.files()) {
    std::error_code error;  // a file that is gone is told by who reads it
    const auto time = std::filesystem::last_write_time(file, error).time_since_epoch().count();
    stamp += fmt::format("{} {} {}\n", file.filename().native(), std::filesystem::file_size(file, error), time);
  }
}

/// The loss of a matrix counts for what was found about its tensors before, too.
void tell_losses(const AuditedModel& model, const std::vector<AuditPart>& parts,
                 std::vector<CheckpointFinding>& findings) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const MatrixPart& matrix : parts[i].matrices) {
      if (matrix.is_accused && !matrix.is_right && matrix.expected_codes) {
        tell_loss(model.recognition->weights[i], matrix.loss_db, findings);
      }
    }
  }
}

/// The findings that explain what differs from the expected; of all experts of a weight one of each kind.
std::vector<CheckpointFinding> findings_explained(const AuditedModel& model, std::vector<AuditPart>& parts) {
  std::vector<CheckpointFinding> found;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Weight& weight = model.recognition->weights[i];
    std::set<FindingKind> told;
    for (const MatrixPart& matrix : parts[i].matrices) {
      if (!matrix.explanation) continue;
      const Explanation& why = *matrix.explanation;
      parts[i].row.verdict = why.words;
      if (!told.insert(why.kind).second) continue;
      const std::string prefix = weight.stacked ? fmt::format("expert {}: ", matrix.expert) : "";
      found.push_back({accused(weight, why.kind), why.kind, prefix + why.words, why.where, matrix.loss_db});
    }
  }
  return found;
}

void append(std::vector<CheckpointFinding>& all, std::vector<CheckpointFinding> some) {
  std::ranges::move(some, std::back_inserter(all));
}

}  // namespace

struct AuditRun::Content {
  AuditedModel model;
  AuditOptions options;
  KeptLines lines;
  std::string stamp = {};
  std::map<std::string, std::size_t, std::less<>> numbers = {};  ///< of weights, by their keys
  std::vector<std::optional<AuditPart>> parts = {};
  std::size_t known = 0;
  double elements = 0, all_elements = 0;

  [[nodiscard]] const Weight& weight(std::size_t i) const { return model.recognition->weights[i]; }
  [[nodiscard]] std::string key_of(std::size_t i) const {
    return fmt::format("{:016x} weight {} of {}", std::hash<std::string>{}(stamp + weight(i).name), i,
                       weight(i).layout->name);
  }
  /// Whether the line is one of an audit; takes it where it is of this one and not known.
  bool take(std::string_view text, bool& is_new) {
    is_new = false;
    const LineJson line = LineJson::parse(text, nullptr, false);
    try {
      const auto found = numbers.find(line.at("key").get_ref<const std::string&>());
      AuditPart part =
          audit_part_of(line.at("part"), found == numbers.end() ? AuditedWeight{} : row_of(weight(found->second)));
      if (found == numbers.end() || parts[found->second]) return true;
      is_new = true;
      parts[found->second] = std::move(part);
      ++known;
      elements += static_cast<double>(weight(found->second).elements());
      return true;
    } catch (const LineJson::exception&) {
      return false;
    } catch (const std::invalid_argument&) {  // a kind of finding that is not known
      return false;
    }
  }
  void tell() const {
    if (options.progress && all_elements != 0) options.progress(elements / all_elements);
    if (!options.kept || !options.checkpoint) return;
    options.kept("the results of " + std::to_string(known) + " of " + std::to_string(parts.size()) +
                 " weights are kept in " + printable(options.checkpoint->native()) + "; --resume goes on from them");
  }
};

AuditRun::AuditRun(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
                   const AuditOptions& options)
    : content_(std::make_unique<Content>(Content{.model = {&quantized, &recognition, original, options.threads},
                                                 .options = options,
                                                 .lines = KeptLines(options.checkpoint, options.resume)})) {
  Content& c = *content_;
  stamp_files(quantized, c.stamp);
  c.stamp += "beside\n";
  if (original != nullptr) stamp_files(*original, c.stamp);
  c.parts.resize(recognition.weights.size());
  for (std::size_t i = 0; i < c.parts.size(); ++i) {
    c.numbers.emplace(c.key_of(i), i);
    c.all_elements += static_cast<double>(c.weight(i).elements());
  }
  c.lines.read([&](std::string_view line) {
    bool is_new = false;
    return c.take(line, is_new);
  });
}

AuditRun::~AuditRun() = default;

const Checkpoint& AuditRun::quantized() const { return *content_->model.quantized; }
const Checkpoint* AuditRun::original() const { return content_->model.original; }

std::vector<PartedRun::Part> AuditRun::missing() const {
  std::vector<Part> all;
  for (std::size_t i = 0; i < content_->parts.size(); ++i) {
    if (!content_->parts[i]) all.push_back({i, content_->weight(i).elements()});
  }
  return all;
}

std::string AuditRun::line_of(std::size_t part) const {
  const Content& c = *content_;
  if (part >= c.parts.size()) {
    refuse("there are ", c.parts.size(), " weights here, and more where the run began");
  }
  return LineJson{{"key", c.key_of(part)}, {"part", json_of(audit_weight(c.model, c.weight(part)))}}.dump() + '\n';
}

void AuditRun::take(std::string_view lines, const std::string& whose) {
  Content& c = *content_;
  while (!lines.empty()) {
    const std::string_view text = lines.substr(0, std::min(lines.find('\n'), lines.size() - 1) + 1);
    lines.remove_prefix(text.size());
    const std::size_t before = c.known;
    bool is_new = false;
    if (!c.take(text, is_new)) refuse(whose, ": a line is no result of a weight");
    if (!is_new && !c.numbers.contains(LineJson::parse(text).at("key").get<std::string>())) {
      refuse(whose, ": it looked at other files than this process");
    }
    if (is_new) c.lines.write(text, before > 0);
  }
  c.tell();
}

Audit AuditRun::result() {
  Content& c = *content_;
  c.tell();
  for (const Part& part : missing()) {
    checkpoint();
    take(line_of(part.number), "this process");
  }
  std::vector<AuditPart> parts;
  parts.reserve(c.parts.size());
  for (const std::optional<AuditPart>& part : c.parts) {
    if (part) parts.push_back(*part);  // all are known by now
  }
  Audit audit;
  append(audit.findings, findings_of_files(*c.model.quantized));
  append(audit.findings, findings_of_names(*c.model.quantized, *c.model.recognition));
  for (AuditPart& part : parts) {
    append(audit.findings, part.findings);
    audit.misreads.insert(audit.misreads.end(), part.misreads.begin(), part.misreads.end());
    if (part.is_without_original) audit.without_original.push_back(part.row.name);
  }
  tell_losses(c.model, parts, audit.findings);
  if (c.model.original != nullptr) compare_with_usual_writers(c.model, parts);
  append(audit.findings, findings_between(c.model, parts));
  append(audit.findings, findings_of_fused(c.model, parts));
  append(audit.findings, findings_explained(c.model, parts));
  for (AuditPart& part : parts) {
    AuditedWeight& row = part.row;
    if (row.verdict.empty()) row.verdict = row.recipe.empty() ? "nothing to say" : "made by " + row.recipe;
    audit.weights.push_back(std::move(row));
  }
  return audit;
}

Audit audit(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
            const AuditOptions& options) {
  return AuditRun(quantized, recognition, original, options).result();
}

}  // namespace fp8lab::experiments
