// SPDX-License-Identifier: Apache-2.0
// wgmma: a group of 128 threads multiplies tiles of shared memory into its registers, asynchronously (sm_90a). The host
// runs the model of Hopper's instruction.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/ptx/mbarrier.hpp"
#include "fp8lab/gpu/ptx/mma_names.hpp"
#include "fp8lab/gpu/team.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/ptx/host_mma.hpp"
#endif

namespace fp8lab::gpu {

/// Orders what threads did with their accumulators, and with shared memory, before the instructions that follow.
template <typename Group>
FP8LAB_HD void wgmma_fence([[maybe_unused]] const Group& group) {
#ifdef __CUDACC__
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  group.fences().fence_registers();
#endif
}
/// Makes what threads wrote to shared memory themselves known to wgmma and tcgen05. All threads of the block call this,
/// where it ends in the block's barrier, or those of a group, before theirs.
template <typename Team>
FP8LAB_HD void fence_shared(const Team& team) {
#ifdef __CUDACC__
  team.for_each_thread([](std::size_t) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); });
#else
  team.publish();
#endif
}
/// Gives registers of the group back, so that each of its threads has kCount, a multiple of 8.
template <unsigned kCount, typename Group>
FP8LAB_HD void give_registers([[maybe_unused]] const Group& group) {
#ifdef __CUDACC__
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
/// Waits until there are kCount registers for each thread of the group.
template <unsigned kCount, typename Group>
FP8LAB_HD void take_registers([[maybe_unused]] const Group& group) {
#ifdef __CUDACC__
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
/// Ends a group of instructions.
template <typename Group>
FP8LAB_HD void wgmma_commit([[maybe_unused]] const Group& group) {
#ifdef __CUDACC__
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  group.commit();
#endif
}
#ifdef __CUDACC__
/// The compiler moves no use of the accumulators across this.
template <unsigned kCount>
__device__ void keep(Accumulators<MmaAccumulator::float32, kCount>& d) {
  unrolled<kCount>([&](unsigned i) { asm volatile("" : "+f"(d.values[i])::"memory"); });
}
template <unsigned kCount>
__device__ void keep(Accumulators<MmaAccumulator::float16, kCount>& d) {
  unrolled<kCount / 2>([&](unsigned i) { asm volatile("" : "+r"(d.words[i])::"memory"); });
}
#endif
/// Waits for all groups of instructions but the latest kPending. Until then nobody writes to their shared memory.
template <unsigned kPending, typename Group>
FP8LAB_HD void wgmma_wait([[maybe_unused]] const Group& group) {
#ifdef __CUDACC__
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#else
  group.finish(kPending);
#endif
}
/// Waits for all instructions. Until then nobody reads or writes their accumulators, d.
template <typename Group, typename D>
FP8LAB_HD void wgmma_wait_all(const Group& group, [[maybe_unused]] D& d) {
  wgmma_wait<0>(group);
#ifdef __CUDACC__
  keep(d[0]);
#endif
}

#ifdef __CUDACC__
/// The operands that follow the descriptors: 16-bit types could be transposed, and are not.
template <MmaType kType>
struct WgmmaRest {
  static constexpr char text[] = "";
};
template <>
struct WgmmaRest<MmaType::f16> {
  static constexpr char text[] = ", 0, 0";
};
template <>
struct WgmmaRest<MmaType::bf16> {
  static constexpr char text[] = ", 0, 0";
};

/// The instruction: d = a * b, or d += a * b where `add` is not 0.
template <typename Instruction>
__device__ void wgmma_ptx(typename Instruction::D& d, std::uint64_t a, std::uint64_t b, std::uint32_t add) {
  using NameA = MmaTypeName<Instruction::type_a>;
  using NameB = MmaTypeName<Instruction::type_b>;
  using Rest = WgmmaRest<Instruction::type_a>;
  constexpr bool is_float = Instruction::accumulator == MmaAccumulator::float32;
  if constexpr (is_float && Instruction::n == 256) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k%131.f32.%132.%133 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
        "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
        "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
        "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "
        "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
        "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
        "%124, %125, %126, %127}, %128, %129, p, 1, 1%134;"
        "\n}"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3]), "+f"(d.values[4]),
          "+f"(d.values[5]), "+f"(d.values[6]), "+f"(d.values[7]), "+f"(d.values[8]), "+f"(d.values[9]),
          "+f"(d.values[10]), "+f"(d.values[11]), "+f"(d.values[12]), "+f"(d.values[13]), "+f"(d.values[14]),
          "+f"(d.values[15]), "+f"(d.values[16]), "+f"(d.values[17]), "+f"(d.values[18]), "+f"(d.values[19]),
          "+f"(d.values[20]), "+f"(d.values[21]), "+f"(d.values[22]), "+f"(d.values[23]), "+f"(d.values[24]),
          "+f"(d.values[25]), "+f"(d.values[26]), "+f"(d.values[27]), "+f"(d.values[28]), "+f"(d.values[29]),
          "+f"(d.values[30]), "+f"(d.values[31]), "+f"(d.values[32]), "+f"(d.values[33]), "+f"(d.values[34]),
          "+f"(d.values[35]), "+f"(d.values[36]), "+f"(d.values[37]), "+f"(d.values[38]), "+f"(d.values[39]),
          "+f"(d.values[40]), "+f"(d.values[41]), "+f"(d.values[42]), "+f"(d.values[43]), "+f"(d.values[44]),
          "+f"(d.values[45]), "+f"(d.values[46]), "+f"(d.values[47]), "+f"(d.values[48]), "+f"(d.values[49]),
          "+f"(d.values[50]), "+f"(d.values[51]), "+f"(d.values[52]), "+f"(d.values[53]), "+f"(d.values[54]),
          "+f"(d.values[55]), "+f"(d.values[56]), "+f"(d.values[57]), "+f"(d.values[58]), "+f"(d.values[59]),
          "+f"(d.values[60]), "+f"(d.values[61]), "+f"(d.values[62]), "+f"(d.values[63]), "+f"(d.values[64]),
          "+f"(d.values[65]), "+f"(d.values[66]), "+f"(d.values[67]), "+f"(d.values[68]), "+f"(d.values[69]),
          "+f"(d.values[70]), "+f"(d.values[71]), "+f"(d.values[72]), "+f"(d.values[73]), "+f"(d.values[74]),
          "+f"(d.values[75]), "+f"(d.values[76]), "+f"(d.values[77]), "+f"(d.values[78]), "+f"(d.values[79]),
          "+f"(d.values[80]), "+f"(d.values[81]), "+f"(d.values[82]), "+f"(d.values[83]), "+f"(d.values[84]),
          "+f"(d.values[85]), "+f"(d.values[86]), "+f"(d.values[87]), "+f"(d.values[88]), "+f"(d.values[89]),
          "+f"(d.values[90]), "+f"(d.values[91]), "+f"(d.values[92]), "+f"(d.values[93]), "+f"(d.values[94]),
          "+f"(d.values[95]), "+f"(d.values[96]), "+f"(d.values[97]), "+f"(d.values[98]), "+f"(d.values[99]),
          "+f"(d.values[100]), "+f"(d.values[101]), "+f"(d.values[102]), "+f"(d.values[103]), "+f"(d.values[104]),
          "+f"(d.values[105]), "+f"(d.values[106]), "+f"(d.values[107]), "+f"(d.values[108]), "+f"(d.values[109]),
          "+f"(d.values[110]), "+f"(d.values[111]), "+f"(d.values[112]), "+f"(d.values[113]), "+f"(d.values[114]),
          "+f"(d.values[115]), "+f"(d.values[116]), "+f"(d.values[117]), "+f"(d.values[118]), "+f"(d.values[119]),
          "+f"(d.values[120]), "+f"(d.values[121]), "+f"(d.values[122]), "+f"(d.values[123]), "+f"(d.values[124]),
          "+f"(d.values[125]), "+f"(d.values[126]), "+f"(d.values[127])
        : "l"(a), "l"(b), "r"(add), "n"(Instruction::k), "C"(NameA::text), "C"(NameB::text), "C"(Rest::text));
  } else if constexpr (is_float && Instruction::n == 128) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k%67.f32.%68.%69 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
        "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
        "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "
        "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1%70;"
        "\n}"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3]), "+f"(d.values[4]),
          "+f"(d.values[5]), "+f"(d.values[6]), "+f"(d.values[7]), "+f"(d.values[8]), "+f"(d.values[9]),
          "+f"(d.values[10]), "+f"(d.values[11]), "+f"(d.values[12]), "+f"(d.values[13]), "+f"(d.values[14]),
          "+f"(d.values[15]), "+f"(d.values[16]), "+f"(d.values[17]), "+f"(d.values[18]), "+f"(d.values[19]),
          "+f"(d.values[20]), "+f"(d.values[21]), "+f"(d.values[22]), "+f"(d.values[23]), "+f"(d.values[24]),
          "+f"(d.values[25]), "+f"(d.values[26]), "+f"(d.values[27]), "+f"(d.values[28]), "+f"(d.values[29]),
          "+f"(d.values[30]), "+f"(d.values[31]), "+f"(d.values[32]), "+f"(d.values[33]), "+f"(d.values[34]),
          "+f"(d.values[35]), "+f"(d.values[36]), "+f"(d.values[37]), "+f"(d.values[38]), "+f"(d.values[39]),
          "+f"(d.values[40]), "+f"(d.values[41]), "+f"(d.values[42]), "+f"(d.values[43]), "+f"(d.values[44]),
          "+f"(d.values[45]), "+f"(d.values[46]), "+f"(d.values[47]), "+f"(d.values[48]), "+f"(d.values[49]),
          "+f"(d.values[50]), "+f"(d.values[51]), "+f"(d.values[52]), "+f"(d.values[53]), "+f"(d.values[54]),
          "+f"(d.values[55]), "+f"(d.values[56]), "+f"(d.values[57]), "+f"(d.values[58]), "+f"(d.values[59]),
          "+f"(d.values[60]), "+f"(d.values[61]), "+f"(d.values[62]), "+f"(d.values[63])
        : "l"(a), "l"(b), "r"(add), "n"(Instruction::k), "C"(NameA::text), "C"(NameB::text), "C"(Rest::text));
  } else if constexpr (is_float) {
    static_assert(Instruction::n == 64);
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k%35.f32.%36.%37 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
        "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
        "%31}, %32, %33, p, 1, 1%38;"
        "\n}"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3]), "+f"(d.values[4]),
          "+f"(d.values[5]), "+f"(d.values[6]), "+f"(d.values[7]), "+f"(d.values[8]), "+f"(d.values[9]),
          "+f"(d.values[10]), "+f"(d.values[11]), "+f"(d.values[12]), "+f"(d.values[13]), "+f"(d.values[14]),
          "+f"(d.values[15]), "+f"(d.values[16]), "+f"(d.values[17]), "+f"(d.values[18]), "+f"(d.values[19]),
          "+f"(d.values[20]), "+f"(d.values[21]), "+f"(d.values[22]), "+f"(d.values[23]), "+f"(d.values[24]),
          "+f"(d.values[25]), "+f"(d.values[26]), "+f"(d.values[27]), "+f"(d.values[28]), "+f"(d.values[29]),
          "+f"(d.values[30]), "+f"(d.values[31])
        : "l"(a), "l"(b), "r"(add), "n"(Instruction::k), "C"(NameA::text), "C"(NameB::text), "C"(Rest::text));
  } else {
    static_assert(Instruction::n == 64);
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k%19.f16.%20.%21 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
        "%11, %12, %13, %14, %15}, %16, %17, p, 1, 1%22;"
        "\n}"
        : "+r"(d.words[0]), "+r"(d.words[1]), "+r"(d.words[2]), "+r"(d.words[3]), "+r"(d.words[4]), "+r"(d.words[5]),
          "+r"(d.words[6]), "+r"(d.words[7]), "+r"(d.words[8]), "+r"(d.words[9]), "+r"(d.words[10]), "+r"(d.words[11]),
          "+r"(d.words[12]), "+r"(d.words[13]), "+r"(d.words[14]), "+r"(d.words[15])
        : "l"(a), "l"(b), "r"(add), "n"(Instruction::k), "C"(NameA::text), "C"(NameB::text), "C"(Rest::text));
  }
}
#endif

/// d = a * b^T, or d += a * b^T where `add` is set, of tiles that descriptors describe: a of 64 rows, b of N, 32 bytes
/// of K each. All 128 threads of the group call this; `d` is an Each of Instruction::D. It ends at the wgmma_wait() for
/// it.
template <typename Instruction, typename Group, typename D>
FP8LAB_HD void wgmma([[maybe_unused]] const Group& group, D& d, std::uint64_t a, std::uint64_t b, bool add) {
#ifdef __CUDACC__
  wgmma_ptx<Instruction>(d[0], a, b, add ? 1 : 0);
#else
  group.fences().start_wgmma();
  group.defer([&group, &d, a, b, add] { host_wgmma<Instruction>(group.team(), d, a, b, add); });
  group.pass();
#endif
}

}  // namespace fp8lab::gpu
