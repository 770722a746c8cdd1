// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `compare`: whether two dumps are equal, and what their differences share.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {
namespace {

/// Tensors whose findings a report tells.
constexpr std::size_t most_told = 20;

/// "1 element", "2 elements".
std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::vector<std::string> verdict(const CompareResult& result) {
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;
  std::size_t tensors = 0;
  for (const ComparedTensor& tensor : result.tensors) {
    elements += tensor.comparison.elements;
    differing += tensor.comparison.differing;
    tensors += tensor.comparison.equal() ? 0 : 1;
  }
  std::vector<std::string> lines;
  if (differing == 0) {
    const std::string_view some =
        result.unpaired.empty() ? "Equal: " : "Different: not every tensor meets one of its type and shape. Equal are ";
    lines.push_back(fmt::format("{}all {} of {}, bit for bit.", some, counted(elements, "element"),
                                counted(result.tensors.size(), "tensor")));
  } else {
    lines.push_back(fmt::format("Different: {} of {} ({:.3g} %), in {} of {}.", differing, counted(elements, "element"),
                                100.0 * static_cast<double>(differing) / static_cast<double>(elements), tensors,
                                counted(result.tensors.size(), "tensor")));
  }
  lines.insert(lines.end(), result.unpaired.begin(), result.unpaired.end());
  return lines;
}

Text findings_text(const CompareResult& result) {
  Text text{"findings", "What the differences have in common"};
  std::size_t told = 0;
  for (const ComparedTensor& tensor : result.tensors) {
    if (tensor.comparison.equal() || ++told > most_told) continue;
    std::string line = result.tensors.size() == 1 ? "" : tensor.name + ": ";
    const std::vector<std::string> sentences = tensor.findings();
    for (const std::string& sentence : sentences) line += sentence + " ";
    if (sentences.empty()) line += "Nothing that all of them share.";
    text.paragraphs.push_back(line);
  }
  if (told > most_told) text.paragraphs.push_back(fmt::format("... and {} tensors more.", told - most_told));
  if (told == 0) text.title.clear();
  return text;
}

Table tensors_table_of(const CompareResult& result) {
  using One = ComparedTensor;
  const auto count = [](std::uint64_t doctor::Comparison::* member) {
    return [member](const One& one) { return one.comparison.*member; };
  };
  // Words without a format have none of these.
  const auto kind = [](std::uint64_t doctor::Comparison::* member) {
    return [member](const One& one) { return one.are_words ? std::nullopt : std::optional(one.comparison.*member); };
  };
  return tabulate(result.tensors, {.name = "tensors", .title = "How many elements differ, and how"})
      .column({"tensor"}, &One::name)
      .column({"type"}, &One::type)
      .column({"shape"}, [](const One& one) { return shape_text(one.shape); })
      .column({"elements"}, count(&doctor::Comparison::elements))
      .column({"differing"}, count(&doctor::Comparison::differing))
      .column({.name = "zero_signs", .title = "-0 for 0"}, kind(&doctor::Comparison::zero_signs))
      .column({.name = "nan_words", .title = "other NaN"}, kind(&doctor::Comparison::nan_words))
      .column({.name = "nan_in_a", .title = "NaN in a"}, kind(&doctor::Comparison::nan_in_a))
      .column({.name = "nan_in_b", .title = "NaN in b"}, kind(&doctor::Comparison::nan_in_b))
      .column({"numbers"}, kind(&doctor::Comparison::numbers))
      .column({.name = "became_zero", .detail = true}, kind(&doctor::Comparison::became_zero))
      .column({.name = "was_zero", .detail = true}, kind(&doctor::Comparison::was_zero))
      .column({.name = "opposite_signs", .detail = true}, kind(&doctor::Comparison::opposite_signs))
      .column({.name = "opposite_values", .detail = true}, kind(&doctor::Comparison::opposite_values))
      .column({.name = "largest_distance", .title = "farthest"}, [](const One& one) {
        return one.are_words ? std::nullopt : std::optional(one.comparison.distances.largest);
      });
}

/// A row of the tables of distances and of differing elements.
struct DistanceRow {
  std::string tensor, distance;
  std::uint64_t below, above;
};
struct MismatchRow {
  std::string tensor;
  std::uint64_t index, row, column;
  double input;
  std::string a, b;
  double value_a, value_b;
  std::optional<Integer> integer_a, integer_b;
};

/// The value of a word of a format; NaN for others.
double number_of(const ComparedTensor& tensor, std::uint64_t word) {
  if (tensor.are_words) return std::numeric_limits<double>::quiet_NaN();
  return doctor::value_of(tensor.comparison.type, word);
}

/// The value of a word of an integer type; none for others.
std::optional<Integer> integer_of(const ComparedTensor& tensor, std::uint64_t word) {
  const bool is_signed = tensor.type.starts_with('I');
  if (!tensor.are_words || !(is_signed || tensor.type.starts_with('U') || tensor.type == "BOOL")) return std::nullopt;
  const int unused = 64 - tensor.comparison.type.bits();
  if (is_signed) return static_cast<std::int64_t>(word << unused) >> unused;
  return word;
}

std::string range_text(std::size_t bin) {
  const std::uint64_t first = doctor::Distances::first_of(bin);
  const std::uint64_t last = doctor::Distances::last_of(bin);
  return first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
}

Table distances_table(const CompareResult& result) {
  std::vector<DistanceRow> rows;
  for (const ComparedTensor& tensor : result.tensors) {
    const doctor::Distances& distances = tensor.comparison.distances;
    for (std::size_t i = 0; i < distances.below.size(); ++i) {
      if (distances.below[i] + distances.above[i] == 0) continue;
      rows.push_back({tensor.name, range_text(i), distances.below[i], distances.above[i]});
    }
  }
  return tabulate(
             rows,
             {.name = "distances", .title = "How many values of the format b is away from a", .detail = rows.empty()})
      .column({.name = "tensor", .detail = result.tensors.size() == 1}, &DistanceRow::tensor)
      .column({.name = "distance", .right = true}, &DistanceRow::distance)
      .column({.name = "below", .title = "b below a"}, &DistanceRow::below)
      .column({.name = "above", .title = "b above a"}, &DistanceRow::above);
}

Table mismatches_table(const CompareResult& result, bool has_input) {
  std::vector<MismatchRow> rows;
  for (const ComparedTensor& tensor : result.tensors) {
    const doctor::Comparison& comparison = tensor.comparison;
    const int digits = (comparison.type.bits() + 3) / 4;
    for (std::size_t i = 0; i < comparison.first.size(); ++i) {
      const auto& [index, a, b] = comparison.first[i];
      rows.push_back({tensor.name, index, index / comparison.columns.length, index % comparison.columns.length,
                      i < tensor.inputs.size() ? tensor.inputs[i] : std::numeric_limits<double>::quiet_NaN(),
                      fmt::format("{:0{}X}", a, digits), fmt::format("{:0{}X}", b, digits), number_of(tensor, a),
                      number_of(tensor, b), integer_of(tensor, a), integer_of(tensor, b)});
    }
  }
  const bool has_integers = std::ranges::any_of(rows, [](const MismatchRow& row) { return row.integer_a.has_value(); });
  return tabulate(rows, {.name = "mismatches", .title = "The first elements that differ", .detail = rows.empty()})
      .column({.name = "tensor", .detail = result.tensors.size() == 1}, &MismatchRow::tensor)
      .column({"index"}, &MismatchRow::index)
      .column({"row"}, &MismatchRow::row)
      .column({"column"}, &MismatchRow::column)
      .column({.name = "input", .digits = 9, .detail = !has_input}, &MismatchRow::input)
      .column({.name = "a", .right = true}, &MismatchRow::a)
      .column({.name = "b", .right = true}, &MismatchRow::b)
      .column({.name = "value_a", .digits = 9}, &MismatchRow::value_a)
      .column({.name = "value_b", .digits = 9}, &MismatchRow::value_b)
      .column({.name = "integer_a", .detail = !has_integers}, &MismatchRow::integer_a)
      .column({.name = "integer_b", .detail = !has_integers}, &MismatchRow::integer_b);
}

void describe(CompareArguments& arguments, ArgumentList& list) {
  list.add("a", arguments.a,
           ".npy or .safetensors file, the .index.json of a checkpoint, a file without a header (raw), or a folder")
      .positional();
  list.add("b", arguments.b, "what it is compared with").positional();
  list.add("format", arguments.format, "what bytes are, where the file does not tell: e4m3, e5m2, e8m0, e2m1, ...")
      .called("NAME")
      .by_default("what the file tells");
  list.add("pairs", arguments.pairs, "two codes of 4 bits in each byte, the first in the lower half")
      .needing({"format"});
  list.add("tensors", arguments.names, "names or patterns of the tensors of .safetensors files")
      .called("NAMES")
      .by_default("all");
  list.add("input", arguments.input, "the file of which both were made, to show beside elements that differ");
  list.add("shown", arguments.most_shown, "how many differing elements of a tensor to list");
  list.add("raw", arguments.raw, "the files have no header").needing({"format"});
  list.add("shape", arguments.shape, "the shape of files without a header").needing({"raw"}).with_repeats();
  list.add_threads(arguments.threads);
}

Document run(const CompareArguments& arguments, const Context& context) {
  const CompareResult result = run_compare(arguments, context.progress);
  const DefaultEnvironment environment;
  Document document;
  document.passed = result.equal();
  document.sections = sections_of(Text{"verdict", "", verdict(result)}, tensors_table_of(result), findings_text(result),
                                  distances_table(result), mismatches_table(result, arguments.input.has_value()));
  return document;
}

}  // namespace

std::vector<Experiment> compare_experiments() {
  return {experiment<CompareArguments>(
      {.name = "compare",
       .summary = "Compare two files or folders of codes, scales or values, bit for bit",
       .description =
           "Says whether two dumps are equal. Where they differ: how many elements, of which kind (the sign of zero, "
           "NaNs, numbers), how many values of the format they are apart, where they lie (rows, columns, a tail, every "
           "second one), and the first ones with their bytes and values. Files are compared piece by piece and may be "
           "larger than memory. Folders pair files by their path and tensors by their name; tensors whose files do not "
           "pair "
           "meet by their name, as those of one checkpoint in one file and in several.",
       .result = "text `verdict`, tables `tensors`, `distances`, `mismatches`, text `findings`",
       .passed = "equal",
       .not_passed = "different",
       .status_not_passed = 1,
       .examples = {{"compare ours.npy theirs.npy --format e4m3", "codes of one tensor"},
                    {"compare ours.safetensors theirs.safetensors", "all tensors by name"},
                    {"compare a/ b/", "all files of two folders"},
                    {"compare a.bin b.bin --raw --format e2m1 --pairs --shape 4096,4096", "FP4 without a header"}},
       .small = R"({"a": "a.npy", "b": "b.npy", "input": "x.npy"})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
