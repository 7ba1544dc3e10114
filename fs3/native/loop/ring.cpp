#include "fs3/native/loop/ring.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fs3 {
namespace {

// Completions of cancel requests, which nobody waits for.
constexpr uint64_t kIgnored = 0;

constexpr unsigned kCompletionsPerSubmission = 4;

// From best to plainest. With DEFER_TASKRUN (Linux 6.1) completions are worked off inside our own
// system call and never interrupt the thread; COOP_TASKRUN is its 5.19 forerunner.
constexpr unsigned kSetupFlags[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL,
    0,
};

// The kernel said no to something that only a bug in this file can ask for.
[[noreturn]] void Abort(const char* call, int error) {
  std::fprintf(stderr, "fs3: %s: %s\n", call, std::strerror(error));
  std::abort();
}

}  // namespace

Loop::Ring::~Ring() {
  if (open_) io_uring_queue_exit(&ring_);
}

Status Loop::Ring::Open(uint32_t queue_depth) {
  int result = -EINVAL;
  for (const unsigned flags : kSetupFlags) {
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = queue_depth * kCompletionsPerSubmission;
    result = io_uring_queue_init_params(queue_depth, &ring_, &params);
    if (result != -EINVAL) break;
  }
  if (result < 0) {
    return Status(Code::kUnavailable,
                  std::string("io_uring is not available: ") + std::strerror(-result) +
                      " (check sysctl kernel.io_uring_disabled, container seccomp profile, and "
                      "the locked-memory limit)");
  }
  open_ = true;
  if (io_uring_probe* probe = io_uring_get_probe_ring(&ring_)) {
    has_zero_copy_send_ = io_uring_opcode_supported(probe, IORING_OP_SENDMSG_ZC) != 0;
    io_uring_free_probe(probe);
  }
  return Status::Ok();
}

void Loop::Ring::Enable() {
  // By number, since liburing 2.3 declares io_uring_enable_rings without exporting it.
  if (syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) !=
      0) {
    Abort("io_uring_register", errno);
  }
}

std::pair<io_uring_sqe*, OperationId> Loop::Ring::Begin(Completion done, Task released) {
  uint32_t index;
  if (free_slots_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.done = std::move(done);
  slot.released = std::move(released);
  return {NextEntry(), static_cast<uint64_t>(slot.generation) << 32 | index};
}

io_uring_sqe* Loop::Ring::NextEntry() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    SubmitAndPoll();  // the queue is full: hand it over now
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void Loop::Ring::Cancel(OperationId id) {
  io_uring_sqe* sqe = NextEntry();
  io_uring_prep_cancel64(sqe, id, 0);
  sqe->user_data = kIgnored;
}

void Loop::Ring::CancelAll() {
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    const Slot& slot = slots_[index];
    if (slot.done || slot.released) {
      Cancel(static_cast<uint64_t>(slot.generation) << 32 | index);
    }
  }
}

void Loop::Ring::SubmitAndPoll() {
  const int result = io_uring_submit_and_get_events(&ring_);
  if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
    Abort("io_uring_enter", -result);
  }
}

void Loop::Ring::SubmitAndWait(std::optional<std::chrono::nanoseconds> timeout) {
  io_uring_cqe* first = nullptr;
  int result;
  if (timeout) {
    __kernel_timespec delay{};
    delay.tv_sec = timeout->count() / 1'000'000'000;
    delay.tv_nsec = timeout->count() % 1'000'000'000;
    result = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &delay, nullptr);
  } else {
    result = io_uring_submit_and_wait(&ring_, 1);
  }
  if (result < 0 && result != -ETIME && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
    Abort("io_uring_enter", -result);
  }
}

void Loop::Ring::RunCompleted() {
  constexpr unsigned kBatch = 64;
  io_uring_cqe* ready[kBatch];
  io_uring_cqe copies[kBatch];
  // Only what is complete now: a loop that feeds itself must still see its timers.
  unsigned remaining = io_uring_cq_ready(&ring_);
  while (remaining > 0) {
    const unsigned count = io_uring_peek_batch_cqe(&ring_, ready, std::min(remaining, kBatch));
    if (count == 0) return;
    for (unsigned i = 0; i < count; ++i) copies[i] = *ready[i];
    io_uring_cq_advance(&ring_, count);
    for (unsigned i = 0; i < count; ++i) Complete(copies[i]);
    remaining -= count;
  }
}

void Loop::Ring::Complete(const io_uring_cqe& cqe) {
  if (cqe.user_data == kIgnored) return;
  const auto index = static_cast<uint32_t>(cqe.user_data);
  assert(index < slots_.size() && slots_[index].generation == cqe.user_data >> 32);
  Slot& slot = slots_[index];
  Completion done;
  if ((cqe.flags & IORING_CQE_F_NOTIF) == 0) done = std::move(slot.done);
  Task released;
  if ((cqe.flags & IORING_CQE_F_MORE) == 0) {
    released = std::move(slot.released);
    ++slot.generation;
    free_slots_.push_back(index);
  }
  if (done) done(cqe.res);
  if (released) released();
}

}  // namespace fs3
