// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/file_findings.hpp"

#include <algorithm>
#include <string>

#include "files/tensor_file.hpp"

namespace fp8lab::experiments {
namespace {

CheckpointFinding finding_of(const FileProblem& problem) {
  const bool is_of_tensors = problem.fault == FileFault::overlap || problem.fault == FileFault::wrong_size;
  if (is_of_tensors && !problem.tensors.empty()) {
    std::string names;
    for (const std::string& name : problem.tensors) names += (names.empty() ? "" : ", ") + printable(name);
    return {problem.tensors.back(), FindingKind::file, problem.words + ": " + names, problem.file};
  }
  std::string words = problem.words;
  if (!problem.tensors.empty()) words += "; the first is " + printable(problem.tensors.front());
  return {problem.file, FindingKind::file, std::move(words)};
}

}  // namespace

std::vector<CheckpointFinding> findings_of_files(const Checkpoint& checkpoint,
                                                 const std::function<bool(const FileProblem&)>& counts) {
  const std::vector<FileProblem>& problems = checkpoint.problems();
  const auto is_total = [](const FileProblem& problem) { return problem.fault == FileFault::total_size; };
  const bool has_cause = !std::ranges::all_of(problems, is_total);
  std::vector<CheckpointFinding> findings;
  for (const FileProblem& problem : problems) {
    if (has_cause && is_total(problem)) continue;
    if (counts(problem)) findings.push_back(finding_of(problem));
  }
  return findings;
}

}  // namespace fp8lab::experiments
