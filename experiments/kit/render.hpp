// SPDX-License-Identifier: Apache-2.0
// A document as text, as JSON, as the files of a result and as a page.
#pragma once

#include <string>

#include "kit/document.hpp"
#include "kit/output.hpp"
#include "kit/picture.hpp"

namespace fp8lab::experiments {

/// A document for a terminal, at any width: text is wrapped, a table that is too wide is split into blocks of columns,
/// pictures go one below another. What is left to JSON and CSV is named at the end.
[[nodiscard]] std::string text_of(const Document& document, const TextStyle& style = {});

/// A text of words, each separated by a blank, in lines of at most `width` columns, every line but the first after
/// `indent` blanks.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width, std::size_t indent = 0);

/// A value of a column as text: with the digits that its notation asks for; "-" where there is none.
[[nodiscard]] std::string cell_text(const Column& column, std::size_t row);
/// The title of a column with its unit.
[[nodiscard]] std::string heading_of(const Head& head);

/// A document as one page of HTML that needs nothing else: pictures are SVG in it, tables can be sorted, it is light or
/// dark as the reader's system is, and all texts are escaped. Tables have 500 rows at most.
[[nodiscard]] std::string page_of(const Document& document);

/// A document under the name of its file.
struct NamedDocument {
  std::string name;
  Document document;
};
/// The same of several documents, in order, below a list of them and `notes`.
[[nodiscard]] std::string page_of(const std::vector<NamedDocument>& documents, const std::string& title,
                                  const std::vector<std::string>& notes);
/// What a notebook shows of a document: its first picture and ten rows of its first table, as a part of a page.
[[nodiscard]] std::string fragment_of(const Document& document);

/// A document as JSON, as document.schema.json describes it, with a line end. A number that there is not is null, an
/// infinite one "inf" or "-inf".
[[nodiscard]] std::string json_of(const Document& document);
/// The document that json_of() wrote. Throws std::invalid_argument where it is none.
[[nodiscard]] Document read_document(const std::string& json);

/// The files of a document: its JSON first, then a CSV for each table, histogram and set of curves, by their names.
[[nodiscard]] Files files_of(const Document& document);
/// The name of the first of these files.
[[nodiscard]] std::string json_file(const Document& document);

}  // namespace fp8lab::experiments
