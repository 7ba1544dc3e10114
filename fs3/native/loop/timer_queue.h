// Timers as a binary heap over pooled slots: start and cancel in O(log n), no allocation once the
// pool is warm. Belongs to one loop and its thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fs3/native/loop/boot_clock.h"
#include "fs3/native/loop/function.h"

namespace fs3 {

// Names a timer; never reused, so a late cancel hits nothing else. 0 names none.
using TimerId = uint64_t;

class TimerQueue {
 public:
  TimerId Add(BootClock::time_point at, Function<void()> task);

  // False when the timer has fired or was cancelled before.
  bool Cancel(TimerId id);

  std::optional<BootClock::time_point> next() const;

  // Runs what is due at `now`, earliest first. Timers added meanwhile wait for the next call.
  void RunDue(BootClock::time_point now);

  void Clear();
  size_t size() const { return heap_.size(); }

 private:
  struct Slot {
    Function<void()> task;
    uint32_t generation = 1;
    uint32_t heap_index = 0;
  };
  struct Entry {
    BootClock::time_point at;
    uint64_t order;  // equal times fire in the order they were started
    uint32_t slot;
    bool operator<(const Entry& other) const {
      return at != other.at ? at < other.at : order < other.order;
    }
  };

  Function<void()> Remove(uint32_t heap_index);
  void Place(uint32_t heap_index, const Entry& entry);
  void SiftUp(uint32_t heap_index);
  void SiftDown(uint32_t heap_index);

  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  uint64_t next_order_ = 0;
};

}  // namespace fs3
