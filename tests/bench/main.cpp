// SPDX-License-Identifier: Apache-2.0
// Verifies every work, measures it and its bound in one run, and prints figure, bound and ratio.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "bench.hpp"
#include "kit/provenance.hpp"

namespace {

using fp8lab::bench::Row;

/// Keeps the times of all repetitions by name, and shows nothing until the table.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        times_[run.run_name.function_name].push_back(run.GetAdjustedRealTime());
      }
    }
  }
  [[nodiscard]] double median(const std::string& name) const {
    std::vector<double> times = times_.at(name);
    std::ranges::sort(times);
    return times[times.size() / 2];
  }
  [[nodiscard]] bool has(const std::string& name) const { return times_.contains(name); }

 private:
  std::map<std::string, std::vector<double>> times_;
};

void measure(const std::string& name, const std::function<void()>& work) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [work](benchmark::State& state) {
                                 for (auto iteration : state) {
                                   (void)iteration;
                                   work();
                                   benchmark::ClobberMemory();
                                 }
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->MinTime(0.1)
      ->Repetitions(5);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::vector<Row> rows = fp8lab::bench::cast_rows();
  std::ranges::move(fp8lab::bench::check_rows(), std::back_inserter(rows));
  std::ranges::move(fp8lab::bench::measure_rows(), std::back_inserter(rows));
  std::ranges::move(fp8lab::bench::layer_rows(), std::back_inserter(rows));
  std::ranges::move(fp8lab::bench::product_rows(), std::back_inserter(rows));
  std::ranges::move(fp8lab::bench::scaling_rows(), std::back_inserter(rows));
  for (const Row& row : rows) {
    if (!row.verified()) {
      std::fprintf(stderr, "bench: %s computes wrong results; nothing was timed\n", row.name.c_str());
      return 1;
    }
  }
  for (const Row& row : rows) {
    measure(row.name, row.work);
    measure("bound of " + row.name, row.bound);
  }
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  std::printf("%s, medians of 5 repetitions\n\n", fp8lab::experiments::provenance().cpu.c_str());
  std::printf("%-50s %10s   %-20s %10s %7s\n", "work", "ms", "bound", "ms", "ratio");
  for (const Row& row : rows) {
    const std::string bound = "bound of " + row.name;
    if (!collector.has(row.name) || !collector.has(bound)) continue;  // --benchmark_filter
    const double time = collector.median(row.name);
    const double least = collector.median(bound) * row.bound_factor;
    std::printf("%-50s %10.2f   %-20s %10.2f %6.2fx\n", row.name.c_str(), time, row.bound_name.c_str(), least,
                time / least);
  }
  return 0;
}
