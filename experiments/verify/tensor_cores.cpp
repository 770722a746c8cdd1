// SPDX-License-Identifier: Apache-2.0
#include "verify/tensor_cores.hpp"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/targets.hpp"
#include "kit/dots.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t tile = 64;           // columns of one kind: as many as vector code takes at once
constexpr std::size_t columns = 8 * tile;  // a tile of every kind that hard_dots() has

/// A GEMM of hard operands.
struct Problem {
  std::size_t rows, depth;
  int promote_k;
  Dots left, right;  // the one's a and scale_a, the other's b and scale_b
};

/// The rows of b's hard dots, those of one kind together.
template <typename Codes>
Codes sorted_by_kind(const Codes& all) {
  const std::size_t width = all.size() / columns;
  Codes sorted;
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t from = (column % tile * 8 + column / tile) * width;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(from);
    sorted.insert(sorted.end(), first, first + static_cast<std::ptrdiff_t>(width));
  }
  return sorted;
}

Problem problem_of(const MmaModel& model, const Format& a, const Format& b, std::size_t rows, int depth, int promote_k,
                   std::uint64_t seed) {
  MmaModel whole = model;  // one instruction of all K
  whole.products_per_step = depth;
  whole.steps = 1;
  Problem problem{rows, static_cast<std::size_t>(depth), promote_k, hard_dots(whole, a, b, rows, 2 * seed),
                  hard_dots(whole, a, b, columns, 2 * seed + 1)};
  problem.right.b = sorted_by_kind(problem.right.b);
  problem.right.scale_b = sorted_by_kind(problem.right.scale_b);
  return problem;
}

Codes product_of(const MmaModel& model, const NamedGemm& multiply, const Problem& problem, int threads,
                 const Progress& progress) {
  const Elements left(problem.left.a, problem.left.format_a);
  const Elements right(problem.right.b, problem.right.format_b);
  return multiply.run(
      {.model = model, .promote_k = problem.promote_k}, left.operand(problem.rows, problem.depth, problem.left.scale_a),
      right.operand(columns, problem.depth, problem.right.scale_b), {.threads = threads, .progress = progress});
}

void compare(ProductCheck& check, std::uint64_t got, std::uint64_t expected) {
  if (got != expected) {
    if (!check.first) check.first = {check.compared, got, expected};
    ++check.mismatches;
  }
  ++check.compared;
}

void compare(ProductCheck& check, const Codes& got, const Codes& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) compare(check, got[i], expected[i]);
}

/// K of one instruction; of several and a part; the same, promoted after every second one.
struct Shape {
  int depth, promote_k;
};
std::vector<Shape> shapes_of(const MmaModel& model) {
  if (model.k() == 0) return {{32, 0}, {112, 0}};
  const int k = model.k();
  const int deep = 3 * k + (model.scales ? model.scales->block : k / 2 + 1);
  if (model.is_fp64()) return {{k, 0}, {deep, 0}};
  return {{k, 0}, {deep, 0}, {deep, 2 * k}};
}

/// gemm() on a target, which stays forced.
NamedGemm gemm_on(std::string_view target) {
  return {std::string(target),
          [target](const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call) {
            force_target(target);
            return gemm_words(recipe, a, b, call);
          }};
}

VerifyTensorCoresRow verify_targets(const MmaModel& model, const VerifyTensorCoresArguments& arguments,
                                    const Progress& progress) {
  struct Unforce {
    ~Unforce() { force_target(""); }
  } guard;
  std::vector<NamedGemm> others;
  for (const std::string_view target : targets()) {
    if (target != "scalar") others.push_back(gemm_on(target));
  }
  return verify_gemms(model, gemm_on("scalar"), others, arguments.dots, arguments.seed, arguments.threads, progress);
}

void check_arguments(const VerifyTensorCoresArguments& arguments) {
  check_list("models", arguments.models);
  check_threads(arguments.threads);
  if (arguments.dots < 1 || arguments.dots > 1LL << 40) refuse("dots must be from 1 to 2^40, not ", arguments.dots);
}

std::vector<MmaModel> models_of(const VerifyTensorCoresArguments& arguments) {
  std::vector<MmaModel> list;
  list.reserve(arguments.models.size());
  for (const std::string& name : arguments.models) list.push_back(find_model(name));
  if (list.empty()) list.assign(models.begin(), models.end());
  return list;
}

/// A row for what `sets` have of the model; none where they have nothing.
template <typename Sets, typename Verify>
void add_row(std::vector<VerifyTensorCoresRow>& rows, const MmaModel& model, const char* kind, const Sets& sets,
             const Verify& verify) {
  VerifyTensorCoresRow row{std::string(model.name), kind, {}};
  for (const auto& set : sets) {
    if (set.model.name == model.name) row.checks.push_back(verify(set));
  }
  if (!row.checks.empty()) rows.push_back(std::move(row));
}

std::vector<VerifyTensorCoresRow> rows_of(const MmaModel& model, const std::optional<Recorded>& vectors,
                                          const std::optional<Recorded>& measured) {
  std::vector<VerifyTensorCoresRow> rows;
  if (vectors) {
    add_row(rows, model, "vectors", vectors->sets,
            [](const RecordedDots& set) { return verify_recorded(set, ZeroRule::count_zero_factors); });
    add_row(rows, model, "chains", vectors->chains, [](const RecordedChains& set) { return verify_chains(set); });
  }
  if (measured) {
    add_row(rows, model, "GPU rows", measured->sets,
            [](const RecordedDots& set) { return verify_recorded(set, ZeroRule::floor); });
  }
  return rows;
}

}  // namespace

std::uint64_t VerifyTensorCoresRow::compared() const {
  std::uint64_t count = 0;
  for (const ProductCheck& check : checks) count += check.compared;
  return count;
}
std::uint64_t VerifyTensorCoresRow::mismatches() const {
  std::uint64_t count = 0;
  for (const ProductCheck& check : checks) count += check.mismatches;
  return count;
}
std::uint64_t VerifyTensorCoresResult::compared() const {
  std::uint64_t count = 0;
  for (const VerifyTensorCoresRow& row : rows) count += row.compared();
  return count;
}
std::uint64_t VerifyTensorCoresResult::mismatches() const {
  std::uint64_t count = 0;
  for (const VerifyTensorCoresRow& row : rows) count += row.mismatches();
  return count;
}

VerifyTensorCoresRow verify_gemms(const MmaModel& model, const NamedGemm& expected,
                                  const std::vector<NamedGemm>& others, long long dots, std::uint64_t seed, int threads,
                                  const Progress& progress) {
  const DefaultEnvironment environment;
  const std::vector<Shape> shapes = shapes_of(model);
  const std::size_t problems = model.operands.size() * model.operands.size() * shapes.size();
  const std::size_t rows = 1 + static_cast<std::size_t>(dots - 1) / (problems * columns);
  VerifyTensorCoresRow row{std::string(model.name), "targets", {}};
  for (const NamedGemm& other : others) row.checks.push_back({.name = other.name});
  std::size_t done = 0;
  const Progress report = [&](double /*share*/) {  // a GEMM is short; a callback in each lets it be stopped
    if (progress) progress(static_cast<double>(done) / static_cast<double>(problems));
  };
  for (const Format& a : model.operands) {
    for (const Format& b : model.operands) {
      for (const Shape& shape : shapes) {
        const Problem problem = problem_of(model, a, b, rows, shape.depth, shape.promote_k, seed * 10'007 + done);
        const Codes wanted = product_of(model, expected, problem, threads, report);
        for (std::size_t i = 0; i < others.size(); ++i) {
          compare(row.checks[i], product_of(model, others[i], problem, threads, report), wanted);
        }
        ++done;
      }
    }
  }
  return row;
}

ProductCheck verify_recorded(const RecordedDots& set, ZeroRule zero_rule) {
  const DefaultEnvironment environment;
  ProductCheck check{.name = set.name};
  const Codes words = mma_words(set.model, set.dots, zero_rule);
  for (std::size_t i = 0; i < words.size(); ++i) compare(check, words[i], set.d[i]);
  return check;
}

ProductCheck verify_chains(const RecordedChains& set) {
  const DefaultEnvironment environment;
  ProductCheck check{.name = set.name};
  for (const RecordedChain& chain : set.chains) {
    const Elements left(chain.dot.a, chain.dot.format_a);
    const Elements right(chain.dot.b, chain.dot.format_b);
    for (const auto& [promote_k, word] : {std::pair{0, chain.fast}, std::pair{128, chain.promoted}}) {
      float out = 0;
      gemm({.model = set.model, .promote_k = promote_k}, left.operand(1, chain.dot.k), right.operand(1, chain.dot.k),
           std::span(&out, 1));
      compare(check, std::bit_cast<std::uint32_t>(out), word);
    }
  }
  return check;
}

VerifyTensorCoresResult verify_tensor_cores(const VerifyTensorCoresArguments& arguments, const Progress& progress,
                                            const VerifyProductsRowDone& row_done) {
  const DefaultEnvironment environment;
  check_arguments(arguments);
  const std::vector<MmaModel> list = models_of(arguments);
  VerifyTensorCoresResult result{arguments, {}, {}};
  std::optional<Recorded> vectors;
  std::optional<Recorded> measured;
  if (arguments.vectors) vectors = read_vectors(*arguments.vectors);
  if (arguments.rows) measured = read_gpu_rows(*arguments.rows);
  for (const auto* recorded : {&vectors, &measured}) {
    if (*recorded) result.sources.push_back((*recorded)->source);
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto part = [&](double share) {
      if (progress) progress((static_cast<double>(i) + share) / static_cast<double>(list.size()));
    };
    std::vector<VerifyTensorCoresRow> rows{verify_targets(list[i], arguments, part)};
    std::ranges::move(rows_of(list[i], vectors, measured), std::back_inserter(rows));
    for (VerifyTensorCoresRow& row : rows) {
      if (row_done) row_done(row);
      result.rows.push_back(std::move(row));
    }
  }
  return result;
}

}  // namespace fp8lab::experiments
