// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fp8lab::experiments {

/// What a report was made of.
struct ReportFacts {
  std::filesystem::path page;          ///< where it is
  std::vector<std::string> documents;  ///< the files that it has, relative to the directory
  std::vector<std::string>
      others;  ///< .json files that are no documents and directories that were not read, with reasons
};

/// Writes a page of all documents, .json files, in `directory` and the directories below it, by name, into `page`, by
/// default report.html there. Links to directories are not followed.
/// Throws std::invalid_argument where there is no directory or no document in it, and what write_file() throws.
ReportFacts write_report(const std::filesystem::path& directory, std::filesystem::path page = {});

}  // namespace fp8lab::experiments
