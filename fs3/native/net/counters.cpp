#include "fs3/native/net/counters.h"

#include <algorithm>
#include <memory>
#include <mutex>

namespace fs3 {
namespace {

struct Name {
  const char* text;
  Counter NetCounters::*field;
};

constexpr Name kNames[] = {
    {"frames_received", &NetCounters::frames_received},
    {"frames_sent", &NetCounters::frames_sent},
    {"bytes_received", &NetCounters::bytes_received},
    {"bytes_sent", &NetCounters::bytes_sent},
    {"receive_calls", &NetCounters::receive_calls},
    {"send_calls", &NetCounters::send_calls},
    {"zero_copy_sends", &NetCounters::zero_copy_sends},
    {"connections_accepted", &NetCounters::connections_accepted},
    {"connections_opened", &NetCounters::connections_opened},
    {"connections_closed", &NetCounters::connections_closed},
    {"connections_stalled", &NetCounters::connections_stalled},
    {"connections_overflowed", &NetCounters::connections_overflowed},
    {"handshakes_refused", &NetCounters::handshakes_refused},
    {"reconnects", &NetCounters::reconnects},
    {"requests_expired", &NetCounters::requests_expired},
    {"requests_refused_busy", &NetCounters::requests_refused_busy},
    {"late_replies", &NetCounters::late_replies},
};
constexpr size_t kNameCount = std::size(kNames);

struct Sums {
  std::array<uint64_t, kNameCount> named{};
  std::array<uint64_t, kMalformedCount> malformed{};

  void Add(const NetCounters& counters) {
    for (size_t i = 0; i < kNameCount; ++i) named[i] += (counters.*kNames[i].field).value();
    for (size_t i = 0; i < kMalformedCount; ++i) malformed[i] += counters.malformed[i].value();
  }
};

// The counters of the threads that live, and the sums of those that have ended. The lock is taken
// when a thread begins or ends counting and when somebody reads, never to count.
struct Registry {
  std::mutex mutex;
  std::vector<const NetCounters*> live;
  Sums ended;
};

const std::shared_ptr<Registry>& GlobalRegistry() {
  static const auto registry = std::make_shared<Registry>();
  return registry;
}

struct Registered {
  NetCounters counters;
  // Kept, since a thread may end after the static destructors have run.
  const std::shared_ptr<Registry> registry = GlobalRegistry();

  Registered() {
    const std::lock_guard lock(registry->mutex);
    registry->live.push_back(&counters);
  }
  ~Registered() {
    const std::lock_guard lock(registry->mutex);
    registry->ended.Add(counters);
    std::erase(registry->live, &counters);
  }
};

}  // namespace

NetCounters& ThreadCounters() {
  thread_local Registered registered;
  return registered.counters;
}

std::vector<std::pair<std::string, uint64_t>> SumCounters() {
  Registry& registry = *GlobalRegistry();
  const std::lock_guard lock(registry.mutex);
  Sums sums = registry.ended;
  for (const NetCounters* counters : registry.live) sums.Add(*counters);
  std::vector<std::pair<std::string, uint64_t>> out;
  for (size_t i = 0; i < kNameCount; ++i) out.emplace_back(kNames[i].text, sums.named[i]);
  for (size_t i = 1; i < kMalformedCount; ++i) {
    const std::string reason(MalformedName(static_cast<Malformed>(i)));
    out.emplace_back("malformed_" + reason, sums.malformed[i]);
  }
  return out;
}

}  // namespace fs3
