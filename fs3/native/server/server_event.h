// What a storage server tells its control shell, and the queue between them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"

namespace fs3 {

struct ServerEvent {
  enum class Kind : uint8_t {
    kTargetError,     // target, code, message: its store failed, it serves nothing any more
    kSyncProgress,    // target (the successor), chain, done and total chunks
    kSyncFinished,    // target (of this node), chain: it holds everything of the chain version
    kPeerRefused,     // node: connecting was refused or impossible
    kPeerReset,       // node: an established connection broke
    kForwardStalled,  // node, target (the successor), chain, stalled_s: no progress for so long
  };
  Kind kind = Kind::kTargetError;
  TargetId target = 0;
  ChainId chain = 0;
  ChainVersion chain_version = 0;
  NodeId node = 0;
  Code code = Code::kOk;
  std::string message;
  uint64_t done = 0;
  uint64_t total = 0;
  double stalled_s = 0;
};

// Many shards write, one shell reads. Bounded: beyond, the oldest event is lost; all of them report
// a condition that is reported again while it lasts.
class ServerEventQueue {
 public:
  static constexpr size_t kEventsMax = 4096;

  ServerEventQueue();
  ~ServerEventQueue();
  ServerEventQueue(const ServerEventQueue&) = delete;
  ServerEventQueue& operator=(const ServerEventQueue&) = delete;

  void Push(ServerEvent event);
  // Waits for the first event, up to `timeout`, and takes all there are.
  std::vector<ServerEvent> Take(std::chrono::nanoseconds timeout);
  // Readable while events wait.
  int fd() const { return fd_; }

 private:
  const int fd_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<ServerEvent> events_;  // guarded by mutex_
};

}  // namespace fs3
