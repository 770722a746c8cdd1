// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `double-rounding`: the codes that change by way of float16 or bfloat16.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "double_rounding/double_rounding.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

/// An input whose code differs, with its chain.
struct DifferingInput {
  const Chain& chain;
  DoublyRounded rounded;
};

std::string chain_name(const Chain& chain) {
  return fmt::format("{} via {}, {}", chain.format.name, chain.via.name, name_of(chain.via_rounding));
}

Text first_examples(const DoubleRoundingResult& result) {
  constexpr std::size_t most = 2;
  Text text{.name = "first", .title = "The first that differ"};
  for (const Chain& chain : result.chains) {
    if (chain.first.empty()) text.paragraphs.push_back(chain_name(chain) + ": none");
    const auto value = [&](std::uint8_t code) {
      return fmt::format("{:.9g} (code {:02X})", decode(chain.format.format, code), code);
    };
    for (std::size_t i = 0; i < std::min(most, chain.first.size()); ++i) {
      const auto& [input, direct, via] = chain.first[i];
      text.paragraphs.push_back(fmt::format("{}: {:.9g} ({:08X}) -> {}, chained {}", chain_name(chain), input,
                                            std::bit_cast<std::uint32_t>(input), value(direct), value(via)));
    }
  }
  return text;
}

Table chains_table(const DoubleRoundingResult& result) {
  const auto share = [&](const Chain& chain) {
    return static_cast<double>(chain.count) / static_cast<double>(result.size);
  };
  return tabulate(result.chains, {.name = "chains"})
      .column({"format"}, [](const Chain& chain) { return chain.format.name; })
      .column({"via"}, [](const Chain& chain) { return chain.via.name; })
      .column({"via_rounding", "rounding to it"}, [](const Chain& chain) { return name_of(chain.via_rounding); })
      .column({"count", "codes that differ"}, [](const Chain& chain) { return chain.count; })
      .column({.name = "share", .notation = Notation::percent, .digits = 4}, share)
      .column({"toward_zero", "toward zero"}, [](const Chain& chain) { return chain.toward_zero; })
      .column({"away"}, [](const Chain& chain) { return chain.count - chain.toward_zero; });
}

Table examples_table(const DoubleRoundingResult& result) {
  std::vector<DifferingInput> examples;
  for (const Chain& chain : result.chains) {
    for (const DoublyRounded& rounded : chain.first) examples.push_back({chain, rounded});
  }
  return tabulate(examples, {.name = "examples", .detail = true})
      .column({"format"}, [](const DifferingInput& one) { return one.chain.format.name; })
      .column({"via"}, [](const DifferingInput& one) { return one.chain.via.name; })
      .column({"via_rounding"}, [](const DifferingInput& one) { return name_of(one.chain.via_rounding); })
      .column({"input"}, [](const DifferingInput& one) { return one.rounded.input; })
      .column({"direct_code"}, [](const DifferingInput& one) { return one.rounded.direct; })
      .column({"via_code"}, [](const DifferingInput& one) { return one.rounded.via; });
}

void describe(DoubleRoundingArguments& arguments, ArgumentList& list) {
  list.add("formats", arguments.formats, "formats to cast to, of at most 8 bits (fp8lab formats lists them)");
  list.add("via", arguments.vias, "formats that values are rounded to first");
  list.add("via_roundings", arguments.via_roundings,
           "roundings to those formats: nearest_even, nearest_away, toward_zero, upward, downward, to_odd");
  list.add("low", arguments.low, "cast every float32 from this number on");
  list.add("high", arguments.high, "up to this number, which is not cast itself");
  list.add("uniform", arguments.uniform, "draw the inputs uniformly between these two numbers instead")
      .called("LOW,HIGH")
      .excluding({"low", "high"})
      .with_repeats();
  list.add("size", arguments.size, "the number of draws").needing({"uniform"});
  list.add("seed", arguments.seed, "the seed of the draws").needing({"uniform"});
  list.add_threads(arguments.threads);
}

Document run(const DoubleRoundingArguments& arguments, const Context& context) {
  return document_of(run_double_rounding(arguments, context.progress));
}

}  // namespace

Document document_of(const DoubleRoundingResult& result) {
  const DefaultEnvironment environment;
  Text intro{"inputs",
             "",
             {fmt::format("Rounding twice: {} inputs, {}", result.size, result.inputs),
              "Each input is cast directly, and by way of a wider format: how many codes differ?"}};
  Table inputs = tabulate(std::vector{result.size}, {.name = "summary", .detail = true})
                     .column({"inputs"}, [&](std::uint64_t) { return result.inputs; })
                     .column({"size"}, [](std::uint64_t size) { return size; });
  Text reading{"reading",
               "How to read it",
               {"The first rounding moves an input onto a tie of the second rounding, or across it. Rounding to odd "
                "instead does not. \"Toward zero\" counts the results that are too small in magnitude: where "
                "all are, the chain is biased."}};
  return {.sections = sections_of(std::move(intro), std::move(inputs), chains_table(result), first_examples(result),
                                  examples_table(result), std::move(reading))};
}

std::vector<Experiment> double_rounding_experiments() {
  return {experiment<DoubleRoundingArguments>(
      {.name = "double-rounding",
       .summary = "Count the codes that change where a cast goes by way of float16 or bfloat16",
       .description =
           "Software without a direct conversion from float32 converts to float16 or bfloat16 first, and so rounds "
           "twice. This counts the inputs whose code changes by that. The first cast follows IEEE 754, the second "
           "one profile cuda_satfinite.",
       .result =
           "tables `chains` (a row for each chain) and `examples` (up to 8 inputs of each chain, with both codes)",
       .examples = {{"double-rounding", "every float32 of [1, 2) to E4M3"},
                    {"double-rounding --uniform -448,448", "draws over E4M3's whole range"},
                    {"double-rounding --formats e5m2 --via-roundings to_odd", "round to odd first: no code changes"}},
       .small = R"({"high": 1.001})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
