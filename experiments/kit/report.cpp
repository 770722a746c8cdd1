// SPDX-License-Identifier: Apache-2.0
#include "kit/report.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/output.hpp"
#include "kit/render.hpp"

namespace fp8lab::experiments {
namespace {

/// The .json files in a directory, by name.
std::vector<std::filesystem::path> json_files_in(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    refuse(in_quotes(directory.native()), " is not a directory");
  }
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(directory, error);
  if (error) throw std::runtime_error("cannot read " + directory.native() + ": " + error.message());
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".json") files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
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
  const std::vector<std::filesystem::path> files = json_files_in(directory);
  if (page.empty()) page = directory / "report.html";
  check_file_writable(page);
  ReportFacts facts{.page = std::move(page), .documents = {}, .others = {}};
  std::vector<NamedDocument> documents;
  for (const std::filesystem::path& file : files) {
    const std::string name = file.filename().native();
    try {
      documents.push_back({file.stem().native(), read_document(text_of_json_file(file))});
      facts.documents.push_back(name);
    } catch (const std::exception& error) {
      facts.others.push_back(name + ": " + one_line(error.what()));
    }
  }
  if (documents.empty()) {
    refuse("there is no document of fp8lab (.json) in ", in_quotes(directory.native()),
           facts.others.empty() ? "" : "; " + facts.others.front());
  }
  std::vector<std::string> notes;
  for (const std::string& other : facts.others) notes.push_back("Left out: " + other);
  const std::filesystem::path last =
      directory.has_filename() ? directory.filename() : directory.parent_path().filename();
  write_file(facts.page, page_of(documents, "fp8lab report: " + last.native(), notes));
  return facts;
}

}  // namespace fp8lab::experiments
