#include "fs3/native/loop/timer_queue.h"

#include <utility>

namespace fs3 {
namespace {

constexpr TimerId MakeId(uint32_t slot, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | slot;
}

}  // namespace

TimerId TimerQueue::Add(BootClock::time_point at, Function<void()> task) {
  uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot].task = std::move(task);
  heap_.push_back({at, next_order_++, slot});
  const auto index = static_cast<uint32_t>(heap_.size() - 1);
  slots_[slot].heap_index = index;
  SiftUp(index);
  return MakeId(slot, slots_[slot].generation);
}

bool TimerQueue::Cancel(TimerId id) {
  const auto slot = static_cast<uint32_t>(id);
  if (slot >= slots_.size() || slots_[slot].generation != id >> 32) return false;
  Remove(slots_[slot].heap_index);
  return true;
}

std::optional<BootClock::time_point> TimerQueue::next() const {
  if (heap_.empty()) return std::nullopt;
  return heap_.front().at;
}

void TimerQueue::RunDue(BootClock::time_point now) {
  const uint64_t first_new = next_order_;
  while (!heap_.empty() && heap_.front().at <= now && heap_.front().order < first_new) {
    Function<void()> task = Remove(0);
    task();
  }
}

void TimerQueue::Clear() {
  while (!heap_.empty()) Remove(static_cast<uint32_t>(heap_.size() - 1));
}

Function<void()> TimerQueue::Remove(uint32_t heap_index) {
  const uint32_t slot = heap_[heap_index].slot;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (heap_index < heap_.size()) {
    Place(heap_index, last);
    SiftUp(heap_index);
    SiftDown(slots_[last.slot].heap_index);
  }
  Function<void()> task = std::move(slots_[slot].task);
  ++slots_[slot].generation;
  free_slots_.push_back(slot);
  return task;
}

void TimerQueue::Place(uint32_t heap_index, const Entry& entry) {
  heap_[heap_index] = entry;
  slots_[entry.slot].heap_index = heap_index;
}

void TimerQueue::SiftUp(uint32_t heap_index) {
  const Entry entry = heap_[heap_index];
  while (heap_index > 0) {
    const uint32_t parent = (heap_index - 1) / 2;
    if (!(entry < heap_[parent])) break;
    Place(heap_index, heap_[parent]);
    heap_index = parent;
  }
  Place(heap_index, entry);
}

void TimerQueue::SiftDown(uint32_t heap_index) {
  const Entry entry = heap_[heap_index];
  const auto size = static_cast<uint32_t>(heap_.size());
  for (uint32_t child = 2 * heap_index + 1; child < size; child = 2 * heap_index + 1) {
    if (child + 1 < size && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < entry)) break;
    Place(heap_index, heap_[child]);
    heap_index = child;
  }
  Place(heap_index, entry);
}

}  // namespace fs3
