// SPDX-License-Identifier: Apache-2.0
// A training that is interrupted and goes on, and checkpoints that are no good.
#include "train/checkpoint.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "experiments/documents.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {

using namespace fp8lab::experiments;

namespace {

struct PollEnded : std::exception {};

/// All recipes with a state of their own, on a small network.
TrainArguments resumable_training() {
  TrainArguments arguments;
  arguments.sizes = {32, 64, 64, 8};
  arguments.batch = 32;
  arguments.steps = 45;
  arguments.error_steps = {3, 30};
  arguments.amax_history_len = 4;
  arguments.recipes = {choose_linear_recipe("te_delayed_hopper"), choose_linear_recipe("te_nvfp4_blackwell")};
  return arguments;
}

/// The document of a result, without what differs by intent: when it was made.
std::string text_of_result(const TrainResult& result) {
  std::string all;
  Document document = document_of(result);
  for (const auto& [name, content] : files_of(document)) {
    if (name.ends_with(".csv")) all += name + content;
  }
  return all;
}

std::string bytes_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}
void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Runs until some polls after so many steps; gives how many steps are saved.
std::uint64_t run_and_stop(const TrainArguments& arguments, double steps) {
  double done = 0;
  int polls = 0;
  const auto poll = [&] {
    if (done >= steps && ++polls > 100) throw PollEnded();
  };
  {
    const Interruptible scope(poll, std::chrono::steady_clock::duration::zero());
    const Progress progress = [&](double share) { done = share * static_cast<double>(arguments.steps); };
    CHECK_THROWS_AS(run_train(arguments, {.progress = progress}), PollEnded);
  }
  std::vector<Run> runs{start_run(arguments, choose_linear_recipe(train_reference))};
  for (const ChosenLinearRecipe& recipe : arguments.recipes) runs.push_back(start_run(arguments, recipe));
  load_checkpoint(*arguments.checkpoint, arguments, runs);
  for (const Run& run : runs) CHECK(run.state.steps == runs.front().state.steps);
  return runs.front().state.steps;
}

}  // namespace

TEST_CASE("a training that is interrupted anywhere and resumed has the bits of one that is not") {
  const Scratch scratch;
  TrainArguments arguments = resumable_training();
  const std::string expected = text_of_result(run_train(arguments));
  arguments.checkpoint = scratch.path / "state";
  for (const int threads : {1, 2}) {
    arguments.threads = threads;
    arguments.resume = false;
    std::filesystem::remove(*arguments.checkpoint);
    CHECK(run_and_stop(arguments, 0) == 0);  // saved after rounds of 20 steps
    arguments.resume = true;
    CHECK(run_and_stop(arguments, 20) == 20);
    CHECK(run_and_stop(arguments, 40) == 40);
    CHECK(text_of_result(run_train(arguments)) == expected);
    // What is complete is told again, without a step.
    CHECK(text_of_result(run_train(arguments)) == expected);
  }
  CHECK(!std::filesystem::exists(scratch.path / "state.fp8lab-writing"));
}

TEST_CASE("what a progress throws ends a training, which is saved") {
  const Scratch scratch;
  TrainArguments arguments = resumable_training();
  arguments.recipes.clear();
  const std::string expected = text_of_result(run_train(arguments));
  arguments.checkpoint = scratch.path / "state";
  const Progress progress = [](double share) {
    if (share > 0.5) throw PollEnded();
  };
  CHECK_THROWS_AS(run_train(arguments, {.progress = progress}), PollEnded);
  arguments.resume = true;
  std::vector<Run> runs{start_run(arguments, choose_linear_recipe(train_reference))};
  load_checkpoint(*arguments.checkpoint, arguments, runs);
  CHECK(runs[0].state.steps == 40);
  CHECK(text_of_result(run_train(arguments)) == expected);
}

TEST_CASE("a training goes on beyond its last step") {
  const Scratch scratch;
  TrainArguments arguments = resumable_training();
  const std::string expected = text_of_result(run_train(arguments));
  arguments.checkpoint = scratch.path / "state";
  arguments.steps = 13;
  static_cast<void>(run_train(arguments));
  arguments.resume = true;
  arguments.steps = 45;
  CHECK(text_of_result(run_train(arguments)) == expected);
  arguments.steps = 20;
  CHECK_THROWS_WITH(run_train(arguments), ContainsSubstring("steps must be at least 45"));
}

TEST_CASE("a checkpoint of another configuration or version, and one that is cut or damaged, is refused") {
  const Scratch scratch;
  TrainArguments arguments = resumable_training();
  arguments.steps = 2;
  arguments.checkpoint = scratch.path / "state";
  static_cast<void>(run_train(arguments));
  const std::string good = bytes_in(*arguments.checkpoint);
  CHECK_THROWS_WITH(run_train(arguments), ContainsSubstring("is there already; resume goes on from it"));
  arguments.resume = true;
  const auto refused = [&](const std::string& message, const TrainArguments& given) {
    CHECK_THROWS_WITH(run_train(given), ContainsSubstring(message));
  };
  // 1. Others' arguments.
  TrainArguments other = arguments;
  other.batch = 64;
  refused("is of another batch: 32, not 64", other);
  other = arguments;
  other.recipes.pop_back();
  refused("is of another recipes: 2, not 1", other);
  other = arguments;
  other.recipes[0].recipe.dgrad.recipe.promote_k = 64;  // a recipe of the same name
  refused("is of another recipe: te_delayed_hopper: ", other);
  // 2. Bytes that are no checkpoint: every cut, and every damaged byte.
  for (std::size_t size = 0; size < good.size(); size += 1 + good.size() / 37) {
    write_bytes(*arguments.checkpoint, good.substr(0, size));
    refused(size < 23 ? "it is no checkpoint of fp8lab train" : "it is cut or damaged", arguments);
  }
  for (std::size_t at = 30; at < good.size(); at += 1 + good.size() / 37) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write_bytes(*arguments.checkpoint, damaged);
    refused("it is cut or damaged", arguments);
  }
  std::filesystem::remove(*arguments.checkpoint);
  CHECK_THROWS_WITH(run_train(arguments), ContainsSubstring("there is no such file"));
  // 3. Where nothing can be written.
  arguments.resume = false;
  arguments.checkpoint = scratch.path / "none" / "state";
  CHECK_THROWS_WITH(run_train(arguments), ContainsSubstring("cannot write"));
  // 4. The good one is still good.
  arguments.checkpoint = scratch.path / "state";
  write_bytes(*arguments.checkpoint, good);
  arguments.resume = true;
  CHECK(run_train(arguments).runs[0].losses.size() == 2);
}

TEST_CASE("a checkpoint of another version is refused by its name") {
  const Scratch scratch;
  TrainArguments arguments = resumable_training();
  arguments.steps = 1;
  arguments.recipes.clear();
  arguments.error_steps.clear();
  arguments.checkpoint = scratch.path / "state";
  static_cast<void>(run_train(arguments));
  std::string bytes = bytes_in(*arguments.checkpoint);
  const std::size_t at = bytes.find("version=") + 8;
  bytes.replace(at, bytes.find('\n', at) - at, "0.0.1");
  bytes.resize(bytes.size() - 8);
  std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
  bytes.append(reinterpret_cast<const char*>(&hash), 8);
  write_bytes(*arguments.checkpoint, bytes);
  arguments.resume = true;
  CHECK_THROWS_WITH(run_train(arguments), ContainsSubstring("is of another version: 0.0.1, not "));
}

}  // namespace fp8lab::tests
