// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/host_races.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace fp8lab::gpu {
namespace {

// The thread whose body runs on this thread of the host.
thread_local HostRaces* running_races = nullptr;
thread_local HostRaces::Who running_thread;

std::size_t index_of(HostRaces::Part part) { return static_cast<std::size_t>(part); }

void raise(HostRaces::Clock& clock, const HostRaces::Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::string words_for(HostRaces::Who who) {
  if (who.part == HostRaces::Part::bulk_copies) return "a bulk copy";
  if (who.part == HostRaces::Part::tcgen05) return "tcgen05";
  if (who.thread == HostRaces::every_thread) return who.part == HostRaces::Part::block ? "the block" : "a group";
  return "thread " + std::to_string(who.thread);
}

const char* verb_of(HostRaces::Access access) {
  switch (access) {
    case HostRaces::Access::read: return " reads";
    case HostRaces::Access::write: return " writes";
    case HostRaces::Access::atomic: return " changes";
  }
  return "";
}

}  // namespace

HostRaces::Running::Running(HostRaces* races, Who who) : races_before_(running_races), who_before_(running_thread) {
  running_races = races;
  running_thread = who;
}
HostRaces::Running::~Running() {
  running_races = races_before_;
  running_thread = who_before_;
}

void HostRaces::access_of_thread(Access access, const void* place, std::size_t bytes) {
  if (running_races == nullptr || !running_races->has(place, bytes)) return;
  running_races->access(access, place, bytes, running_thread);
}

void HostRaces::access(Access access, const void* place, std::size_t bytes, Who who, const Clock& known) {
  if (!has(place, bytes)) return;
  const std::size_t first = place_of(place);
  const std::scoped_lock lock(mutex_);
  if (!memory_) memory_.reset(static_cast<Byte*>(std::calloc(bytes_, sizeof(Byte))));
  if (!memory_) throw std::bad_alloc();
  const Record now{now_, who.thread, who.part, access};
  const auto compare = [&](const Record& before, std::size_t i) {
    if (before.moment <= known[index_of(before.part)]) return;  // it is over
    const bool is_harmless = access == before.access && access != Access::write;
    const bool is_own = before.thread == who.thread && who.thread != every_thread;
    if (!is_harmless && !is_own) tell(now, before, i);
  };
  for (std::size_t i = first; i < first + bytes; ++i) {
    Byte& byte = memory_.get()[i];
    compare(byte.write, i);
    for (const auto& [last, other] : byte.others) {
      compare(last, i);
      compare(other, i);
    }
    if (access == Access::write) {
      byte.write = now;
      continue;
    }
    auto& [last, other] = byte.others[index_of(who.part)];
    if (last.thread != who.thread) other = last;
    last = now;
  }
}

void HostRaces::tell(const Record& later, const Record& earlier, std::size_t place) {
  if (!found_.empty()) return;
  found_ = "a race in shared memory: " + words_for({later.part, later.thread}) + verb_of(later.access) + " byte " +
           std::to_string(place) + ", which " + words_for({earlier.part, earlier.thread}) + verb_of(earlier.access) +
           ", and no barrier is between them";
}

void HostRaces::check() const {
  if (!found_.empty()) throw std::logic_error(found_);
}

void HostRaces::meet(Part part) { known_[index_of(part)][index_of(part)] = now_++; }

void HostRaces::fork() {
  for (const Part role : {Part::first_role, Part::second_role, Part::third_role}) {
    known_[index_of(role)] = known(Part::block);
  }
}
void HostRaces::join() { known_[index_of(Part::block)].fill(now_++); }

HostRaces::Clock HostRaces::told(Part part, Part ended) {
  Clock clock = known(part);
  clock[index_of(ended)] = now_++;
  return clock;
}
void HostRaces::arrive(const void* barrier, const Clock& told) { raise(barriers_[barrier], told); }
void HostRaces::wait(Part part, const void* barrier) { raise(known_[index_of(part)], barriers_[barrier]); }

}  // namespace fp8lab::gpu
