// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `doctor-gemm`: how a GEMM came to its output.
#include <fmt/format.h>

#include <bit>
#include <string>
#include <vector>

#include "doctor_gemm/doctor_gemm.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

/// Pairs that the report lists; the table has all.
constexpr std::size_t most_pairs_told = 12;

struct GemmExplanationRow {
  std::size_t rank;
  std::string hypothesis, models;
  std::size_t unexplained, checked;
  bool is_tied;
};

Table gemm_explanations_table(const doctor::GemmDiagnosis& diagnosis, std::size_t most) {
  std::vector<GemmExplanationRow> rows;
  for (std::size_t i = 0; i < std::min(most, diagnosis.explanations.size()); ++i) {
    const doctor::GemmExplanation& one = diagnosis.explanations[i];
    rows.push_back({i + 1, describe(one), fmt::format("{}", fmt::join(one.models, " ")), one.unexplained, one.checked,
                    i < diagnosis.tied});
  }
  return tabulate(rows, {.name = "explanations", .title = "What explains the output, the best first"})
      .column({"rank"}, &GemmExplanationRow::rank)
      .column({"hypothesis"}, &GemmExplanationRow::hypothesis)
      .column({.name = "unexplained", .title = "elements unexplained"}, &GemmExplanationRow::unexplained)
      .column({.name = "checked", .title = "of"}, &GemmExplanationRow::checked)
      .column({.name = "models", .title = "tensor cores that give the same", .detail = true},
              &GemmExplanationRow::models)
      .column({.name = "tied", .title = "the first, or not told from it", .detail = true},
              [](const GemmExplanationRow& row) { return row.is_tied ? 1 : 0; });
}

double value_of_word(const Format& format, std::uint64_t word) {
  constexpr Format single = binary32;
  const auto code = static_cast<std::uint32_t>(word);
  return format == single ? static_cast<double>(std::bit_cast<float>(code)) : decode(format, code);
}

Table gemm_elements_table(const DoctorGemmResult& result) {
  using One = doctor::GemmElement;
  const Format format = result.format;
  const int digits = (format.bits() + 3) / 4;
  const auto hex = [digits](std::uint64_t word) { return fmt::format("{:0{}X}", word, digits); };
  const auto second = [hex](const One& one) { return one.second ? hex(*one.second) : std::string(); };
  const auto value = [format](std::uint64_t word) { return value_of_word(format, word); };
  const bool explained = result.diagnosis.explained();
  const bool tells_next = explained && result.diagnosis.is_expected();
  std::string second_title = tells_next ? "next" : "expected";
  std::string title = tells_next ? "Elements that tell the first explanation from the next that gives something else"
                                 : "Elements that are not as expected";
  if (!explained) {
    second_title = "second";
    title = "Elements that the first explanation leaves unexplained";
  }
  return tabulate(result.diagnosis.shown,
                  {.name = "elements", .title = title, .detail = result.diagnosis.shown.empty()})
      .column({.name = "row", .title = "row, of a too"}, &One::row)
      .column({.name = "column", .title = "column, row of b"}, &One::column)
      .column({.name = "out", .right = true}, [hex](const One& one) { return hex(one.word); })
      .column({.name = "first", .right = true}, [hex](const One& one) { return hex(one.first); })
      .column({.name = "second", .title = second_title, .right = true}, second)
      .column({.name = "value", .digits = 9}, [value](const One& one) { return value(one.word); })
      .column({.name = "value_first", .digits = 9}, [value](const One& one) { return value(one.first); })
      .column({.name = "value_second", .digits = 9},
              [value](const One& one) { return value(one.second.value_or(one.first)); });
}

Table undecided_table(const DoctorGemmResult& result) {
  using Pair = std::pair<std::size_t, std::size_t>;
  static const std::vector<Pair> none;
  return tabulate(
             result.probe ? result.probe->alike : none,
             {.name = "undecided", .title = "Explanations that no input that was tried tells apart", .detail = true})
      .column({"first"}, [](const Pair& pair) { return pair.first + 1; })
      .column({"second"}, [](const Pair& pair) { return pair.second + 1; });
}

Table along_k_table(const DoctorGemmResult& result) {
  using One = doctor::FirstDifference;
  std::vector<One> rows;
  if (result.diagnosis.first_difference) rows.push_back(*result.diagnosis.first_difference);
  return tabulate(rows, {.name = "along_k",
                         .title = "The elements of K whose products bring the first difference",
                         .detail = rows.empty()})
      .column({.name = "from", .title = "from"}, &One::from)
      .column({.name = "to", .title = "up to, without"}, &One::to);
}

Text gemm_verdict_text(const DoctorGemmResult& result, const DoctorGemmArguments& arguments) {
  Text text{"verdict", "", {result.diagnosis.verdict}};
  for (const std::string& sentence : result.diagnosis.rest) text.paragraphs.push_back(sentence);
  if (!result.probe) return text;
  const doctor::GemmProbe& probe = *result.probe;
  if (result.probed == 0) {
    text.paragraphs.emplace_back(
        "The probe's rows end one after the other along K: what the GEMM makes of it tells where the first difference "
        "enters.");
    return text;
  }
  if (probe.parted() != 0) {
    const std::string differ = fmt::format("inputs on which {} of the {} pairs of the first {} explanations differ",
                                           probe.parted(), probe.pairs, result.probed);
    text.paragraphs.push_back(arguments.probe ? "The probe has " + differ + "."
                                              : "There are " + differ + ": --probe DIR writes them.");
  }
  if (probe.alike.empty()) return text;
  std::string line = "No input that was tried tells apart:";
  for (std::size_t i = 0; i < std::min(most_pairs_told, probe.alike.size()); ++i) {
    const auto& [first, second] = probe.alike[i];
    line += fmt::format("{} {} and {}", i == 0 ? "" : ",", first + 1, second + 1);
  }
  const std::size_t more = probe.alike.size() - std::min(most_pairs_told, probe.alike.size());
  text.paragraphs.push_back(line + (more == 0 ? "." : fmt::format(", and {} pairs more.", more)));
  return text;
}

void describe(DoctorGemmArguments& arguments, ArgumentList& list) {
  list.add("a", arguments.a,
           "the first operand: codes or floats of a .npy or .safetensors file, an index or a folder, (M, K)")
      .positional();
  list.add("b", arguments.b, "the second operand, (N, K)").positional();
  list.add("product", arguments.product, "what the GEMM gave, the output: floats of 32 or 16 bits, or codes, (M, N)")
      .positional();
  list.add("format_a", arguments.format_a, "what codes of a are, where the file does not tell")
      .called("NAME")
      .by_default("e4m3");
  list.add("format_b", arguments.format_b, "the same for b").called("NAME").by_default("e4m3");
  list.add("product_format", arguments.product_format, "what codes of the product are, where the file does not tell")
      .called("NAME");
  list.add("scale_a", arguments.scale_a,
           "scales of a: float32 for the tensor, for each row, 1 x 128 or 128 x 128 elements; or codes of blocks")
      .called("FILE");
  list.add("scale_b", arguments.scale_b, "the same for b").called("FILE");
  list.add("scale_format", arguments.scale_format, "what scales of a byte are: e8m0 or ue4m3")
      .called("NAME")
      .by_default("what the file tells, or as many as there are");
  list.add("tensor_scale_a", arguments.tensor_scale_a, "the scale of the tensor a, which multiplies");
  list.add("tensor_scale_b", arguments.tensor_scale_b, "the scale of the tensor b");
  list.add("c", arguments.c, "what was added to the product: floats, (M, N)").called("FILE");
  list.add("bias", arguments.bias, "the bias: N floats").called("FILE");
  list.add("scale_out", arguments.scale_out, "what the result was multiplied with before it was rounded");
  list.add("layout", arguments.layout,
           "nt; nn where b is stored as (K, N), tn where a is (K, M) too, tt where a alone is")
      .called("NAME");
  list.add("scale_layout", arguments.scale_layout,
           "compact, or swizzled for codes of blocks as a tensor core wants them")
      .called("NAME");
  list.add("places", arguments.places,
           "row and column of each element of the product, M1,N1,M2,N2,..., where it has only some")
      .called("INTS")
      .by_default("the product is whole")
      .with_repeats();
  list.add("tensors", arguments.names,
           "tensors of .safetensors files, one for each: of a, b, product, scale_a, scale_b, c and bias, in this order")
      .called("NAMES")
      .by_default("the only one of each file")
      .with_repeats();
  list.add("raw", arguments.raw, "files have no header: codes, and float32 for scales, c and bias");
  list.add("sizes", arguments.sizes, "M,N,K of files without a header")
      .called("INTS")
      .by_default("what the files tell")
      .needing({"raw"})
      .with_repeats();
  list.add("expected", arguments.expected,
           "what the GEMM should do, a GEMM recipe such as deepgemm_1d2d_hopper, or a tensor core: nothing else is "
           "correct then")
      .by_default("any plain GEMM");
  list.add("expected_promote_k", arguments.expected_promote_k, "after how many products it should promote; 0: never")
      .called("K")
      .by_default("as the recipe")
      .needing({"expected"});
  list.add("expected_split_k", arguments.expected_split_k, "the lengths of the ranges in which it should split K")
      .called("INTS")
      .by_default("as the recipe")
      .needing({"expected"})
      .with_repeats();
  list.add("expected_split_order", arguments.expected_split_order, "the ranges' numbers in the order of addition")
      .called("INTS")
      .by_default("as the recipe")
      .needing({"expected"});
  list.add("expected_scale_order", arguments.expected_scale_order,
           "how scales of tiles and rows should multiply: scales_first or accumulator_first")
      .called("NAME")
      .by_default("as the recipe, or scales_first for tiles, accumulator_first for rows")
      .needing({"expected"});
  list.add("expected_c_enters", arguments.expected_c_enters, "where c should enter: epilogue or accumulator")
      .called("NAME")
      .by_default("as the recipe")
      .needing({"expected"});
  list.add("expected_zero_rule", arguments.expected_zero_rule, "what zeros should contribute to the alignment")
      .called("NAME")
      .by_default("as the recipe")
      .needing({"expected"});
  list.add("expected_profile", arguments.expected_profile, "how the output should be rounded")
      .by_default("as the recipe, or cuda_satfinite for codes, cuda_nosat for float16 and bfloat16")
      .needing({"expected"});
  list.add("shown", arguments.most_shown, "how many explanations and elements to list");
  list.add("most_products", arguments.most_products, "how many products to compute in the end, which bounds the time");
  list.add_threads(arguments.threads);
  list.add(
          "probe", arguments.probe,
          "where to write inputs on which the explanations differ, or where there is none, that tell where along K the "
          "first difference enters")
      .called("DIR");
}

Document run(const DoctorGemmArguments& arguments, const Context& /*context*/) {
  const DoctorGemmResult result = run_doctor_gemm(arguments);
  const DefaultEnvironment environment;
  Document document;
  document.passed = result.diagnosis.correct();
  document.sections =
      sections_of(gemm_verdict_text(result, arguments), gemm_explanations_table(result.diagnosis, arguments.most_shown),
                  gemm_elements_table(result), undecided_table(result), along_k_table(result));
  return document;
}

}  // namespace

std::vector<Experiment> doctor_gemm_experiments() {
  return {experiment<DoctorGemmArguments>(
      {.name = "doctor-gemm",
       .summary = "Say how a GEMM came to its output: accumulator, order, scales, rounding",
       .description =
           "Searches the tensor core, promotion, split-K, order, use of scales, addition of c and bias, and rounding "
           "by "
           "which every element of the output follows from the operands; then other orders of K and rules for zeros, "
           "and "
           "then defects: an operand transposed, a scale missing or applied twice, the last products missing, ... Says "
           "when the data cannot tell some apart, and writes inputs that do.",
       .result = "text `verdict`, tables `explanations`, `elements`, `undecided`, `along_k`",
       .not_passed = "not a plain GEMM on a tensor core, or not the expected one, or the data does not tell",
       .status_not_passed = 1,
       .examples =
           {{"doctor-gemm a.npy b.npy out.npy", "which tensor core, and how was it promoted?"},
            {"doctor-gemm a.npy b.npy out.npy --scale-a sa.npy --scale-b sb.npy",
             "with scales of rows, tiles or blocks"},
            {"doctor-gemm a.npy b.npy out.npy --bias bias.npy --probe probe", "with inputs that tell more"},
            {"doctor-gemm a.npy b.npy out.npy --scale-a sa.npy --scale-b sb.npy --expected deepgemm_1d2d_hopper",
             "is it what it should be?"},
            {"doctor-gemm a.npy b.npy out.npy --expected hopper_wgmma_fp8 --expected-promote-k 128",
             "by a tensor core, and what is not as usual"}},
       .small = R"({"a": "left.npy", "b": "right.npy", "product": "product.npy", "bias": "bias.npy"})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
