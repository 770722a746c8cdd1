// SPDX-License-Identifier: Apache-2.0
#include "quantize/suspect.hpp"

#include <algorithm>
#include <mutex>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab::doctor {

void verify(Suspect& suspect, const StoredDump& dump, std::uint64_t enough) {
  const Source& source = suspect.side->source;
  const KernelModel model(source, suspect.candidate.hypothesis, &dump);
  model.complete();
  suspect.codes = 0;
  suspect.examples.clear();
  constexpr std::size_t most_examples = 64;
  std::mutex mutex;
  Randomness random;
  Unexplained& found = suspect.unexplained;
  found = Unexplained::none_of(source);
  const std::size_t columns = std::max<std::size_t>(1, source.columns());
  const std::size_t rows = std::max<std::size_t>(1, scalar_piece / columns);
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        {
          const std::scoped_lock lock(mutex);
          if (suspect.codes >= enough) return;
        }
        std::vector<std::uint64_t> which;
        Unexplained places = Unexplained::none_of(source);
        std::uint64_t count = 0;
        Randomness own;
        for (std::size_t row = first; row < last; ++row) {
          own.add(model.randomness({row, 0, source.columns()}));
          for (std::size_t column = 0; column < source.columns(); column += scalar_piece) {
            const std::size_t length = std::min(scalar_piece, source.columns() - column);
            count += model.code_mismatches({row, column, length}, &which, most_examples, &places);
          }
        }
        const std::scoped_lock lock(mutex);
        random.add(own);
        suspect.codes += count;
        found.join(places);
        // The smallest indices, so that the result does not depend on threads.
        suspect.examples.insert(suspect.examples.end(), which.begin(), which.end());
        std::ranges::sort(suspect.examples);
        if (suspect.examples.size() > most_examples) suspect.examples.resize(most_examples);
      },
      rows);
  if (suspect.codes >= enough) return;
  found.count = suspect.codes;
  suspect.scale_examples.clear();
  suspect.scales = model.scale_mismatches(&suspect.scale_examples, most_examples);
  if (!random.is_random()) suspect.codes += static_cast<std::uint64_t>(random.inexact);
}

}  // namespace fp8lab::doctor
