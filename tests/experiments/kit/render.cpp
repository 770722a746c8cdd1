// SPDX-License-Identifier: Apache-2.0
#include "kit/render.hpp"

#include <cmath>
#include <limits>
#include <sstream>

#include "experiments/documents.hpp"
#include "kit/argument.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

struct Row {
  std::string name;
  double db;
  std::optional<int> count;
  bool flag;
};
const std::vector<Row> sample_rows{{"one, \"quoted\"", 31.5, 7, true},
                                   {"two", std::nan(""), std::nullopt, false},
                                   {"three", std::numeric_limits<double>::infinity(), -3, true}};

Document made_by_hand() {
  const Table table =
      tabulate(sample_rows, {.name = "casts", .title = "Errors", .marked = true})
          .column({"name"}, &Row::name)
          .column({.name = "db", .title = "SQNR", .unit = "dB", .notation = Notation::fixed, .digits = 2}, &Row::db)
          .column({"count"}, &Row::count)
          .column({.name = "flag", .detail = true}, &Row::flag);
  return {.experiment = "by_hand",
          .sections = {Text{"intro", "", {"Some words, which are wrapped where the terminal is narrow."}}, table}};
}

}  // namespace

TEST_CASE("a document as text: units, missing numbers, marks, and what is left to JSON and CSV") {
  CHECK(text_of(made_by_hand(), {.width = 80}) ==
        "Some words, which are wrapped where the terminal is narrow.\n"
        "\n"
        "Errors:\n"
        "  # name           SQNR dB  count\n"
        "  a one, \"quoted\"    31.50      7\n"
        "  b two                  -      -\n"
        "  c three              inf     -3\n"
        "\n"
        "Also in JSON and CSV: casts with flag.\n");
}

TEST_CASE("a narrow terminal gets wrapped words, and labels above their rows") {
  CHECK(text_of(made_by_hand(), {.width = 28}) ==
        "Some words, which are\n"
        "wrapped where the terminal\n"
        "is narrow.\n"
        "\n"
        "Errors:\n"
        "  # name\n"
        "     SQNR dB  count\n"
        "  a one, \"quoted\"\n"
        "       31.50      7\n"
        "  b two\n"
        "           -      -\n"
        "  c three\n"
        "         inf     -3\n"
        "\n"
        "Also in JSON and CSV: casts\n"
        "  with flag.\n");
}

TEST_CASE("a document comes back from its JSON, and its CSV has all digits") {
  const Document document = made_by_hand();
  const Document same = read_document(json_of(document));
  CHECK(json_of(same) == json_of(document));
  CHECK(text_of(same) == text_of(document));
  const Files files = files_of(document);
  CHECK(names_of(files) == std::vector<std::string>{"by_hand.json", "casts.csv"});
  CHECK(files[1].second == "name,db,count,flag\n\"one, \"\"quoted\"\"\",31.5,7,1\ntwo,,,0\nthree,inf,-3,1\n");
  CHECK_THROWS_WITH(read_document("{}"), ContainsSubstring("not the JSON of a document"));
  CHECK_THROWS_WITH(read_document("[1"), ContainsSubstring("not the JSON of a document"));
}

TEST_CASE("what differs from what is expected is marked, and followed by it") {
  auto table = tabulate(sample_rows, {.name = "corner"});
  table.column({"row"}, [](const Row& row) { return row.flag; });
  table.column({.name = "value", .right = true}, [](const Row& row) { return row.name.substr(0, 3); });
  table.expected({"one", "twa", "thr"});
  CHECK(text_of({.sections = {Table(table)}}) ==
        "  row       value\n"
        "  yes         one\n"
        "  no          two\n"
        "                ^\n"
        "  expected    twa\n"
        "  yes         thr\n");
}

TEST_CASE("arguments are made of texts and of values, and say what they exclude and need") {
  long long size = 3;
  std::uint64_t seed = 1;
  std::vector<double> scales;
  std::optional<ChosenFormat> format;
  ArgumentList list;
  list.add("size", size, "how many");
  list.add("seed", seed, "which").needing({"size"});
  list.add("scales", scales, "factors").excluding({"size"});
  list.add("format", format, "what to cast to");
  list.find("size").set({Entry("1e3")});
  list.find("seed").set({Entry(std::uint64_t{1} << 63)});
  list.find("scales").set({Entry(0.5), Entry("2")});
  CHECK(
      list.json().text() ==
      "{\n \"size\": 1000,\n \"seed\": 9223372036854775808,\n \"scales\": [\n  0.5,\n  2.0\n ],\n \"format\": null\n}");
  list.find("format").set({Entry("e5m2")});
  CHECK(format->format == e5m2);
  CHECK(list.find("scales").option() == "--scales");
  CHECK_THROWS_WITH(list.find("size").set({Entry("1.5")}), "'1.5' is not a whole number, such as 1000 or 1e6");
  CHECK_THROWS_WITH(
      list.find("sizes"),
      ContainsSubstring("unknown argument 'sizes'; known: size, seed, scales, format; did you mean size?"));
  const auto spelled = [](const std::string& name) { return "--" + name; };
  CHECK_THROWS_WITH(list.check_given({"seed"}, spelled), "--seed can be given only with --size");
  CHECK_THROWS_WITH(list.check_given({"scales", "size"}, spelled), "--scales cannot be given with --size");
  CHECK_NOTHROW(list.check_given({"seed", "size"}, spelled));
}

}  // namespace fp8lab::tests
