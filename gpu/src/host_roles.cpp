// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/host_roles.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fp8lab/gpu/host_races.hpp"

namespace fp8lab::gpu {

void HostRoles::run(const std::vector<std::function<void()>>& bodies) {
  turn_ = next();
  std::vector<std::thread> threads;
  threads.reserve(bodies.size());
  for (std::size_t i = 0; i < bodies.size(); ++i) threads.emplace_back([this, &bodies, i] { live(i, bodies[i]); });
  for (std::thread& thread : threads) thread.join();
  if (failure_) std::rethrow_exception(failure_);
  if (!copies_.empty()) throw std::logic_error("a kernel ended before its bulk copies");
}

void HostRoles::wait_until(std::size_t role, std::function<bool()> ready) {
  roles_[role].ready = std::move(ready);
  pass(role);
  roles_[role].ready = nullptr;
}

void HostRoles::pass(std::size_t role) {
  std::unique_lock lock(mutex_);
  turn_ = next();
  changed_.notify_all();
  await(lock, role);
}

void HostRoles::copy(std::function<void()> work) {
  copies_.push_back(std::move(work));
  if (order_.kind == HostOrder::Kind::descending) end_copy(0);
}

void HostRoles::defer(std::size_t role, std::function<void()> work) {
  roles_[role].deferred.push_back(std::move(work));
}

void HostRoles::commit(std::size_t role) {
  roles_[role].groups.push_back(roles_[role].done + roles_[role].deferred.size());
}

void HostRoles::finish(std::size_t role, std::size_t groups) {
  Role& own = roles_[role];
  if (own.groups.size() <= groups) return;
  const std::size_t until = own.groups[own.groups.size() - 1 - groups];
  while (own.done < until) do_first(own);
}

void HostRoles::live(std::size_t role, const std::function<void()>& body) {
  try {
    {
      std::unique_lock lock(mutex_);
      await(lock, role);
    }
    body();
    if (!roles_[role].deferred.empty()) throw std::logic_error("a role ended before its matrix instructions");
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  roles_[role].ended = true;
  try {
    turn_ = next();
  } catch (...) {  // from a copy
    failure_ = std::current_exception();
  }
  changed_.notify_all();
}

void HostRoles::await(std::unique_lock<std::mutex>& lock, std::size_t role) {
  changed_.wait(lock, [&] { return turn_ == role || failure_; });
  if (failure_) throw Stopped{};
}

std::size_t HostRoles::next() {
  if (failure_ || std::ranges::all_of(roles_, &Role::ended)) return nobody;
  const HostRaces::Running no_thread;
  if (order_.kind == HostOrder::Kind::shuffled) end_some();
  while (true) {
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (!roles_[i].ended && (!roles_[i].ready || roles_[i].ready())) able.push_back(i);
    }
    if (!able.empty()) return able[pick(able.size())];
    if (copies_.empty()) {
      failure_ = std::make_exception_ptr(std::logic_error("every role of the team waits at a barrier: a hang"));
      return nobody;
    }
    end_copy(pick(copies_.size()));
  }
}

std::size_t HostRoles::pick(std::size_t count) {
  switch (order_.kind) {
    case HostOrder::Kind::ascending: return 0;
    case HostOrder::Kind::descending: return count - 1;
    case HostOrder::Kind::shuffled: return random_() % count;
  }
  return 0;
}

void HostRoles::end_some() {
  while (!copies_.empty() && random_() % 2 == 0) end_copy(random_() % copies_.size());
  for (Role& role : roles_) {
    while (!role.deferred.empty() && random_() % 2 == 0) do_first(role);
  }
}

void HostRoles::end_copy(std::size_t i) {
  const HostRaces::Running no_thread;
  const auto work = std::move(copies_[i]);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
  work();
}

void HostRoles::do_first(Role& role) {
  const HostRaces::Running no_thread;
  const auto work = std::move(role.deferred.front());
  role.deferred.pop_front();
  ++role.done;
  work();
}

}  // namespace fp8lab::gpu
