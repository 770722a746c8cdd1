// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/cublaslt.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "cublaslt_api.hpp"

namespace fp8lab::gpu {
namespace {

using namespace cublaslt;
namespace fs = std::filesystem;

/// A handle or descriptor of the library, which a function of it destroys.
using Owned = std::shared_ptr<void>;

template <typename Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("this cuBLASLt has no function ") + name);
}

Functions functions_of(void* library) {
  Functions f{};
  find_function(library, "cublasLtCreate", f.cublasLtCreate);
  find_function(library, "cublasLtDestroy", f.cublasLtDestroy);
  find_function(library, "cublasLtGetStatusName", f.cublasLtGetStatusName);
  find_function(library, "cublasLtGetVersion", f.cublasLtGetVersion);
  find_function(library, "cublasLtMatmulDescCreate", f.cublasLtMatmulDescCreate);
  find_function(library, "cublasLtMatmulDescDestroy", f.cublasLtMatmulDescDestroy);
  find_function(library, "cublasLtMatmulDescSetAttribute", f.cublasLtMatmulDescSetAttribute);
  find_function(library, "cublasLtMatrixLayoutCreate", f.cublasLtMatrixLayoutCreate);
  find_function(library, "cublasLtMatrixLayoutDestroy", f.cublasLtMatrixLayoutDestroy);
  find_function(library, "cublasLtMatmulPreferenceCreate", f.cublasLtMatmulPreferenceCreate);
  find_function(library, "cublasLtMatmulPreferenceDestroy", f.cublasLtMatmulPreferenceDestroy);
  find_function(library, "cublasLtMatmulPreferenceSetAttribute", f.cublasLtMatmulPreferenceSetAttribute);
  find_function(library, "cublasLtMatmulAlgoGetHeuristic", f.cublasLtMatmulAlgoGetHeuristic);
  find_function(library, "cublasLtMatmulAlgoConfigGetAttribute", f.cublasLtMatmulAlgoConfigGetAttribute);
  find_function(library, "cublasLtMatmul", f.cublasLtMatmul);
  return f;
}

int data_type(MmaType type) {
  if (type == MmaType::e4m3) return real_e4m3;
  if (type == MmaType::e5m2) return real_e5m2;
  throw std::invalid_argument("cuBLASLt's FP8 product takes e4m3 and e5m2");
}

}  // namespace

struct CublasLt::Library {
  Functions f{};
  Owned handle;

  /// Throws where a call failed.
  void check(Status status, const char* function) const {
    if (status == 0) return;
    throw std::runtime_error(std::string(function) + ": " + f.cublasLtGetStatusName(status));
  }
  /// Owns the object that create(&object) makes.
  template <typename Create>
  [[nodiscard]] Owned make(const char* function, Status (*destroy)(void*), const Create& create) const {
    void* made = nullptr;
    check(create(&made), function);
    return {made, [destroy](void* one) { destroy(one); }};
  }
  [[nodiscard]] Owned layout(int type, std::size_t rows, std::size_t columns) const {
    return make("cublasLtMatrixLayoutCreate", f.cublasLtMatrixLayoutDestroy, [&](void** made) {
      return f.cublasLtMatrixLayoutCreate(made, type, rows, columns, static_cast<std::int64_t>(rows));
    });
  }
  template <typename T>
  void set(const Owned& desc, int attribute, T value) const {
    check(f.cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
};

struct CublasLt::Plan::State {
  std::shared_ptr<const Library> library;
  Owned desc, a, b, d;
  Algorithm algorithm;
};

CublasLt::CublasLt(const fs::path& library) {
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw std::runtime_error(std::string("cuBLASLt cannot be loaded: ") + ::dlerror());
  auto own = std::make_shared<Library>();
  own->f = functions_of(loaded);
  own->handle = own->make("cublasLtCreate", own->f.cublasLtDestroy, own->f.cublasLtCreate);
  library_ = std::move(own);
}

std::string CublasLt::version() const {
  const std::size_t number = library_->f.cublasLtGetVersion();
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

CublasLt::Plan CublasLt::plan(const LibraryGemm& product) const {
  const Library& lib = *library_;
  auto state = std::make_shared<Plan::State>();
  state->library = library_;
  // 1. cuBLASLt's matrices are column-major: its A is b with K rows, transposed, its B is a, its D is d with N rows.
  state->a = lib.layout(data_type(product.type_b), product.k, product.n);
  state->b = lib.layout(data_type(product.type_a), product.k, product.m);
  state->d = lib.layout(real_32f, product.n, product.m);
  state->desc = lib.make("cublasLtMatmulDescCreate", lib.f.cublasLtMatmulDescDestroy,
                         [&](void** made) { return lib.f.cublasLtMatmulDescCreate(made, compute_32f, real_32f); });
  lib.set(state->desc, desc_trans_a, std::int32_t{transposed});
  lib.set(state->desc, desc_fast_accum, static_cast<std::int8_t>(product.fast ? 1 : 0));
  // 2. The algorithm, with as much memory for split-K as PyTorch gives on Hopper.
  const Owned preference = lib.make("cublasLtMatmulPreferenceCreate", lib.f.cublasLtMatmulPreferenceDestroy,
                                    [&](void** made) { return lib.f.cublasLtMatmulPreferenceCreate(made); });
  const std::uint64_t most = std::uint64_t{32} << 20;
  lib.check(lib.f.cublasLtMatmulPreferenceSetAttribute(preference.get(), pref_max_workspace_bytes, &most, sizeof(most)),
            "cublasLtMatmulPreferenceSetAttribute");
  Heuristic best{};
  int found = 0;
  lib.check(lib.f.cublasLtMatmulAlgoGetHeuristic(lib.handle.get(), state->desc.get(), state->a.get(), state->b.get(),
                                                 state->d.get(), state->d.get(), preference.get(), 1, &best, &found),
            "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for the product");
  lib.check(best.state, "cublasLtMatmulAlgoGetHeuristic");
  state->algorithm = best.algorithm;
  // 3. What it tells of the algorithm.
  Plan plan;
  for (const auto& [name, attribute] : {std::pair{"algorithm", algo_id},
                                        {"tile", algo_tile},
                                        {"split-K", algo_split_k},
                                        {"reduction", algo_reduction},
                                        {"stages", algo_stages}}) {
    std::int32_t value = 0;
    std::size_t written = 0;
    if (lib.f.cublasLtMatmulAlgoConfigGetAttribute(&best.algorithm, attribute, &value, sizeof(value), &written) != 0) {
      continue;  // not every algorithm has every attribute
    }
    plan.algorithm_ += (plan.algorithm_.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(value);
  }
  plan.workspace_bytes_ = best.workspace;
  plan.state_ = std::move(state);
  return plan;
}

void CublasLt::Plan::run(const std::uint8_t* a, const std::uint8_t* b, float* d, std::byte* workspace) const {
  const float one = 1;
  const float zero = 0;
  const State& s = *state_;
  s.library->check(
      s.library->f.cublasLtMatmul(s.library->handle.get(), s.desc.get(), &one, b, s.a.get(), a, s.b.get(), &zero, d,
                                  s.d.get(), d, s.d.get(), &s.algorithm, workspace, workspace_bytes_, nullptr),
      "cublasLtMatmul");
}

fs::path find_cublaslt(std::span<const fs::path> folders) {
  std::vector<fs::path> places;
  for (const fs::path& folder : folders) {
    places.insert(places.end(), {folder, folder / "lib64", folder / "lib"});
    std::error_code ignored;
    std::vector<fs::path> packages;
    for (const auto& entry : fs::directory_iterator(folder / "nvidia", ignored))
      packages.push_back(entry.path() / "lib");
    std::ranges::sort(packages);
    places.insert(places.end(), packages.begin(), packages.end());
  }
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    for (const fs::path& place : places) {
      std::error_code ignored;
      if (fs::is_regular_file(place / name, ignored)) return place / name;
    }
  }
  return {};
}

}  // namespace fp8lab::gpu
