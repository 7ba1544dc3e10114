// The clock of deadlines: monotonic and counting through suspend (CLOCK_BOOTTIME), so that a lease
// or a deadline is over after a laptop's lid was closed.
#pragma once

#include <time.h>

#include <chrono>

namespace fs3 {

struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

}  // namespace fs3
