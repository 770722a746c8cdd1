// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/text.hpp"

#include <array>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("foreign text is quoted as printable ASCII, of what is long the ends") {
  CHECK(in_quotes("e4m3") == "'e4m3'");
  CHECK(in_quotes("") == "''");
  CHECK(in_quotes(std::string_view("a\x1b[31m\n\0\xFF\xC3\xBC", 10)) == R"('a\x1b[31m\x0a\x00\xff\xc3')");
  const std::string huge = "begin" + std::string(3'000'000, '\n') + "end";
  CHECK(in_quotes(huge).size() == 82);
  CHECK(in_quotes(huge).starts_with(R"('begin\x0a)"));
  CHECK(in_quotes(huge).ends_with(R"(\x0aend')"));
  const std::string fits(80, 'x');
  CHECK(in_quotes(fits) == std::string("'") + fits + "'");
}

TEST_CASE("a message is one line of at most 300 characters") {
  CHECK(one_line("a\nb\tc\rd") == "a b c d");
  CHECK(one_line("\x7F\x80") == R"(\x7f\x80)");
  CHECK(one_line(std::string(300, 'x')) == std::string(300, 'x'));
  for (const std::size_t size : {301U, 599U, 600U, 601U, 5'000'000U}) {
    const std::string line = one_line("begin" + std::string(size - 8, 'x') + "end");
    CHECK(line.size() == 300);
    CHECK(line.starts_with("beginx"));
    CHECK(line.ends_with("xend"));
  }
}

TEST_CASE("an unknown name: all known ones where they fit, else the most similar ones first") {
  constexpr std::array few{Named{"one", 1}, Named{"two", 2}};
  CHECK(find_named(few, "number", "two").value == 2);
  CHECK_THROWS_WITH(find_named(few, "number", "\x1btwo"),
                    R"(unknown number '\x1btwo'; known: one, two; did you mean two?)");
  const std::array<std::string_view, 3> models{"ada_fp16", "ada_mma_fp8", "ada_mma_fp16"};
  CHECK_THROWS_WITH(refuse_name("model", "ada_fp8", models), ContainsSubstring("did you mean ada_mma_fp8?"));
  CHECK_THROWS_WITH(find_named(few, "number", "onetwo"), "unknown number 'onetwo'; known: one, two");
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("name_" + std::to_string(i));
  names.emplace_back("nearly_thiss");
  const std::vector<std::string_view> views(names.begin(), names.end());
  CHECK_THROWS_WITH(refuse_name("thing", "nearly_this", views),
                    ContainsSubstring("unknown thing 'nearly_this'; known: nearly_thiss, name_") &&
                        ContainsSubstring(" more; did you mean nearly_thiss?"));
  try {
    refuse_name("thing", std::string(1'000'000, 'x'), views);
  } catch (const std::invalid_argument& error) {
    CHECK(std::string_view(error.what()).size() <= 270);
  }
}

}  // namespace fp8lab::tests
