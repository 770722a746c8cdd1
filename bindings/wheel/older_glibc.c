// SPDX-License-Identifier: Apache-2.0
// What the C++ library of a newer distribution asks of glibc and 2.28 has not, made of what it has.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

// Of 2.32. That there is one thread alone saves libstdc++ atomic instructions; without glibc's word there may be more.
char __libc_single_threaded = 0;

// Of 2.36, for std::random_device.
uint32_t arc4random(void) {
  uint32_t word;
  while (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
    if (errno != EINTR) abort();
  }
  return word;
}

// Of 2.30, for std::condition_variable::wait_until with steady_clock. Waiting by another clock for what is left may end
// early or late where that clock is set meanwhile; its callers look at their own clock again.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec now, deadline;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &deadline);
  int64_t nanoseconds = (int64_t)deadline.tv_nsec + until->tv_nsec - now.tv_nsec;
  deadline.tv_sec += until->tv_sec - now.tv_sec;
  for (; nanoseconds < 0; nanoseconds += 1000000000) --deadline.tv_sec;
  for (; nanoseconds >= 1000000000; nanoseconds -= 1000000000) ++deadline.tv_sec;
  deadline.tv_nsec = nanoseconds;
  return pthread_cond_timedwait(condition, mutex, &deadline);
}
