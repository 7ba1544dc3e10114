// The io_uring behind a loop: set-up with the best flags the kernel offers, pooled operation slots,
// one system call to submit and wait. Internal to fs3/native/loop.
#pragma once

#include <liburing.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "fs3/native/loop/loop.h"

namespace fs3 {

class Loop::Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Status Open(uint32_t queue_depth);

  // Binds the ring to the calling thread, the only one that may submit from then on.
  void Enable();

  // A free submission entry and the operation behind it; fill it, then Finish.
  std::pair<io_uring_sqe*, OperationId> Begin(Completion done, Task released = {});
  static OperationId Finish(io_uring_sqe* sqe, OperationId id) {
    sqe->user_data = id;
    return id;
  }

  void Cancel(OperationId id);
  void CancelAll();

  void SubmitAndPoll();
  void SubmitAndWait(std::optional<std::chrono::nanoseconds> timeout);
  void RunCompleted();

  size_t in_flight() const { return slots_.size() - free_slots_.size(); }
  bool has_zero_copy_send() const { return has_zero_copy_send_; }

 private:
  struct Slot {
    Completion done;
    Task released;
    uint32_t generation = 1;
  };

  io_uring_sqe* NextEntry();
  void Complete(const io_uring_cqe& cqe);

  io_uring ring_{};
  bool open_ = false;
  bool has_zero_copy_send_ = false;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
};

}  // namespace fs3
