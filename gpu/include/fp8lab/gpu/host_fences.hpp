// SPDX-License-Identifier: Apache-2.0
// Fences on the host: a device orders little without them, and the host, which orders everything, has to ask for them.
#pragma once

#include <stdexcept>

namespace fp8lab::gpu {

/// The fences of one role. An instruction before which one is missing throws std::logic_error that names it.
class HostFences {
 public:
  /// `barriers_known`: fence.mbarrier_init was run behind the barriers' init().
  explicit HostFences(bool barriers_known) : barriers_known_(barriers_known) {}

  // wgmma.fence stands between what threads do with registers and wgmma.
  void use_registers() { registers_ordered_ = false; }
  void fence_registers() { registers_ordered_ = true; }
  void start_wgmma() const {
    require(registers_ordered_, "wgmma without wgmma.fence behind what threads did with registers");
  }

  // tcgen05.fence::after_thread_sync stands between a barrier and what follows in tensor memory.
  void pass_barrier() { is_behind_barrier_ = true; }
  void fence_behind_barrier() { is_behind_barrier_ = false; }
  void start_tensor_memory() const {
    require(!is_behind_barrier_, "tcgen05 without tcgen05.fence::after_thread_sync behind a barrier");
  }
  // tcgen05.fence::before_thread_sync stands between loads and stores of tensor memory and a barrier.
  void use_tensor_memory() {
    start_tensor_memory();
    has_used_tensor_memory_ = true;
    is_tensor_memory_shared_ = false;
  }
  void fence_before_barrier() { has_used_tensor_memory_ = false; }
  void come_to_barrier() const {
    require(!has_used_tensor_memory_, "a barrier without tcgen05.fence::before_thread_sync behind tensor memory");
  }

  // A barrier of the role's threads stands between what all of them do and what one does, and the other way around.
  void meet() {
    is_tensor_memory_shared_ = true;
    has_waited_alone_ = false;
  }
  void wait_alone() { has_waited_alone_ = true; }
  void go_on_together() const {
    require(!has_waited_alone_, "threads that go on behind a barrier at which one of them has waited");
  }
  void start_for_all() const {
    require(is_tensor_memory_shared_, "tcgen05 of one thread without a barrier behind the tensor memory of others");
  }

  // fence.mbarrier_init stands between init() and what arrives at a barrier asynchronously.
  void start_async_arrival() const {
    require(barriers_known_, "barriers without fence.mbarrier_init behind their init");
  }

 private:
  static void require(bool is_fenced, const char* what) {
    if (!is_fenced) throw std::logic_error(what);
  }

  bool barriers_known_;
  bool registers_ordered_ = false;
  bool is_behind_barrier_ = false;
  bool has_used_tensor_memory_ = false;
  bool is_tensor_memory_shared_ = true;
  bool has_waited_alone_ = false;
};

}  // namespace fp8lab::gpu
