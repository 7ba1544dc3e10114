// Ticket: one call of the IO client under way, and the pieces it was split into.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/client/file.h"
#include "fs3/native/client/io_types.h"
#include "fs3/native/frame/chunk_ops.h"
#include "fs3/native/loop/boot_clock.h"
#include "fs3/native/loop/timer_queue.h"
#include "fs3/native/net/buffer.h"

namespace fs3 {

class Ticket;
struct ReadAttempt;

enum class IoKind : uint8_t { kRead, kWrite, kTruncate, kRemove, kQueryLast, kFlush };

// One operation on one chunk (or, for kRemove, kQueryLast and kFlush, on one chain). Belongs to the
// loop's thread once it is submitted.
struct IoPiece {
  Ticket* ticket = nullptr;
  uint32_t request = 0;  // index in the ticket
  IoKind kind = IoKind::kRead;
  ChainId chain = 0;
  ChunkId chunk;
  uint32_t offset = 0;
  uint32_t length = 0;
  uint32_t cut = kWireNoCut;
  uint32_t chunk_size = 0;
  uint64_t truncate_version = 0;
  uint8_t* memory = nullptr;  // of the caller: to fill (kRead) or to send (kWrite)
  uint32_t crc = 0;           // kWrite: of the data

  // kWrite: names the update for ever.
  uint32_t channel = 0;
  uint64_t sequence = 0;  // 0: has no channel yet

  // kRead.
  std::vector<TargetId> tried;       // in this round
  ReadAttempt* receiving = nullptr;  // whose data is arriving in `memory`
  uint32_t attempts = 0;             // under way
  Code failure = Code::kOk;          // of the last attempt that failed
  bool may_pass = false;             // one of this round failed for a reason that may pass
  bool hedged = false;
  std::unique_ptr<Buffer> fallback;  // whole and verified, while `receiving` is still at it

  // kFlush: members still to answer.
  uint32_t flushes = 0;
  Code flush_code = Code::kOk;

  bool done = false;
  bool retried = false;
  bool parked = false;
  TimerId park_timer = 0;
  std::chrono::nanoseconds backoff{};
};

class Ticket {
 public:
  Ticket(uint64_t id, size_t requests) : id_(id), results_(requests) {}

  uint64_t id() const { return id_; }

  // Waits until everything is decided; false when `timeout` passed before.
  bool Wait(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return done_; });
  }
  // Once Wait has returned true.
  const std::vector<IoResult>& results() const { return results_; }

 private:
  friend class Engine;
  friend class IoClient;

  void MarkDone() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  const uint64_t id_;
  BootClock::time_point deadline_;
  bool in_queue_ = false;  // tell by the completion queue, too
  std::vector<IoResult> results_;
  std::vector<std::shared_ptr<File>> files_;  // of the requests
  std::vector<uint64_t> ends_;                // kWrite: where each request ends in its file
  std::vector<IoPiece> pieces_;               // fixed once submitted

  // The loop's thread only.
  size_t missing_ = 0;            // pieces without a result
  size_t under_way_ = 0;          // attempts that refer to pieces
  std::shared_ptr<Ticket> self_;  // while anything refers to pieces

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

}  // namespace fs3
