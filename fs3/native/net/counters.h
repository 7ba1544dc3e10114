// What the network layer did, for metrics and for tests that must know which capability moved the
// bytes. Each thread counts for itself; a reader adds the threads up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fs3/native/frame/frame.h"

namespace fs3 {

// A counter with one writing thread and readers elsewhere.
class Counter {
 public:
  void Add(uint64_t amount = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct NetCounters {
  Counter frames_received;
  Counter frames_sent;
  Counter bytes_received;
  Counter bytes_sent;
  Counter receive_calls;
  Counter send_calls;
  Counter zero_copy_sends;
  Counter connections_accepted;
  Counter connections_opened;  // by us
  Counter connections_closed;
  Counter connections_stalled;
  Counter connections_overflowed;
  Counter handshakes_refused;
  Counter reconnects;
  Counter requests_expired;
  Counter requests_refused_busy;
  Counter late_replies;
  std::array<Counter, kMalformedCount> malformed;
};

// Those of the calling thread.
NetCounters& ThreadCounters();

// Name and sum over all threads, also those that have ended. Callable from any thread.
std::vector<std::pair<std::string, uint64_t>> SumCounters();

}  // namespace fs3
