// SPDX-License-Identifier: Apache-2.0
// Writes and reads numbers as text, whatever locale the program has.
#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <utility>

namespace fp8lab {

/// A stream into a string that writes numbers with a point and without grouping, whatever std::locale::global() the
/// program has: a plain std::ostringstream takes that locale. It throws std::bad_alloc where memory runs out: a plain
/// one then leaves out what comes, and says nothing.
class TextStream : public std::ostringstream {
 public:
  TextStream() {
    imbue(std::locale::classic());
    exceptions(std::ios_base::badbit);
  }
};

/// A stream that reads numbers from a string in the same way.
class TextReader : public std::istringstream {
 public:
  explicit TextReader(std::string text) : std::istringstream(std::move(text)) { imbue(std::locale::classic()); }
};

}  // namespace fp8lab
