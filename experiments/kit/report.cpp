// SPDX-License-Identifier: Apache-2.0
#include "kit/report.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/output.hpp"
#include "kit/render.hpp"

namespace fp8lab::experiments {
namespace {

/// What a directory and those below it have.
struct Found {
  std::vector<std::filesystem::path> files;  ///< .json files, relative to the directory
  std::vector<std::string> others;           ///< directories that were not read, each with the reason
};

/// Adds what `directory` / `below` has. Links to directories are not followed: they may lead back.
void find_json_files(const std::filesystem::path& directory, const std::filesystem::path& below, Found& found) {
  checkpoint();
  std::error_code error;
  std::filesystem::directory_iterator entry(directory / below, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path path = below / entry->path().filename();
    std::error_code unknown;
    if (!entry->is_directory(unknown)) {
      if (path.extension() == ".json") found.files.push_back(path);
    } else if (entry->is_symlink(unknown)) {
      found.others.push_back(path.native() + ": a link to a directory, which is not followed");
    } else {
      find_json_files(directory, path, found);
    }
  }
  if (!error) return;
  if (below.empty()) throw std::runtime_error("cannot read " + directory.native() + ": " + error.message());
  found.others.push_back(below.native() + ": a directory that cannot be read: " + error.message());
}

/// Both lists are sorted.
Found json_files_under(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    refuse(in_quotes(directory.native()), " is not a directory");
  }
  Found found;
  find_json_files(directory, {}, found);
  std::ranges::sort(found.files);
  std::ranges::sort(found.others);
  return found;
}

std::string text_of_json_file(const std::filesystem::path& path) {
  constexpr std::uint64_t most = std::uint64_t{1} << 28;
  const StoredFile file(path);
  if (file.size() > most) file.fail("it has more than 2^28 bytes");
  std::string text(static_cast<std::size_t>(file.size()), ' ');
  text.resize(file.read(0, text));
  return text;
}

}  // namespace

ReportFacts write_report(const std::filesystem::path& directory, std::filesystem::path page) {
  Found found = json_files_under(directory);
  if (page.empty()) page = directory / "report.html";
  check_file_writable(page);
  ReportFacts facts{.page = std::move(page), .documents = {}, .others = std::move(found.others)};
  std::vector<NamedDocument> documents;
  for (const std::filesystem::path& file : found.files) {
    checkpoint();
    try {
      documents.push_back({std::filesystem::path(file).replace_extension().native(),
                           read_document(text_of_json_file(directory / file))});
      facts.documents.push_back(file.native());
    } catch (const std::exception& error) {
      facts.others.push_back(file.native() + ": " + one_line(error.what()));
    }
  }
  if (documents.empty()) {
    refuse("there is no document of fp8lab (.json) in ", in_quotes(directory.native()), " or a directory below it",
           facts.others.empty() ? "" : "; left out: " + facts.others.front(),
           facts.others.size() > 1 ? " (and " + std::to_string(facts.others.size() - 1) + " more)" : "");
  }
  std::vector<std::string> notes;
  for (const std::string& other : facts.others) notes.push_back("Left out: " + other);
  const std::filesystem::path last =
      directory.has_filename() ? directory.filename() : directory.parent_path().filename();
  write_file(facts.page, page_of(documents, "fp8lab report: " + last.native(), notes));
  return facts;
}

}  // namespace fp8lab::experiments
