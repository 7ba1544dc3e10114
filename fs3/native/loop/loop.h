// Loop: one thread, one io_uring, nothing shared.
//
// Everything that belongs to a loop (connections, timers, a shard's targets) is touched only by the
// thread inside Run(). Other threads reach it through Post() alone, so no state needs a lock.
//
// A turn of the loop: run what completed, run posted tasks, run due timers, run deferred tasks,
// then hand every new operation to the kernel and wait, in one system call.
//
// Thread and lifetime rules
//   * Post, Stop and InLoopThread may be called from any thread. Everything else belongs to the
//     loop's thread, or to the thread that made the loop until Run() starts.
//   * Memory, descriptors and iovec arrays handed to an operation must live until its completion
//     has been called. Each completion is called exactly once, on the loop's thread, never from
//     inside the call that started the operation.
//   * Results are those of the system call: >= 0, or -errno. Short reads and writes are reported,
//     not hidden.
//   * Stop(): Run() cancels what is in flight, calls every completion (with -ECANCELED where the
//     kernel gave up), drops the timers and returns. After that no operation touches any memory.
//   * A loop must be made after fork(); a child cannot use its parent's loop.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fs3/native/base/status.h"
#include "fs3/native/loop/boot_clock.h"
#include "fs3/native/loop/function.h"
#include "fs3/native/loop/timer_queue.h"

namespace fs3 {

using Task = Function<void()>;
using Completion = Function<void(int32_t result)>;

// Names an operation in flight, for Cancel. Never reused, so a late Cancel hits nothing else.
using OperationId = uint64_t;

class Loop {
 public:
  struct Options {
    uint32_t queue_depth = 512;  // submissions gathered per system call
    std::string name = "fs3-loop";
  };

  // kUnavailable when the kernel offers no io_uring (disabled by sysctl, seccomp, or too old).
  static Result<std::unique_ptr<Loop>> Create(const Options& options);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Serves until Stop(). Once per loop.
  void Run();
  void Stop();
  bool InLoopThread() const;

  // Runs `task` on the loop's thread. False when the loop has ended: the task was not taken.
  bool Post(Task task);

  // Runs `task` at the end of this turn, before the new operations are submitted: the place to
  // gather what the turn produced into one system call.
  void Defer(Task task) { deferred_.push_back(std::move(task)); }

  // The time of this turn; BootClock::now() without the call.
  BootClock::time_point now() const { return now_; }

  TimerId StartTimer(BootClock::time_point at, Task task);
  TimerId StartTimer(std::chrono::nanoseconds delay, Task task) {
    return StartTimer(now_ + delay, std::move(task));
  }
  // False when the timer has fired or was cancelled before.
  bool CancelTimer(TimerId id) { return timers_.Cancel(id); }

  // Files.
  OperationId Read(int fd, void* to, size_t size, uint64_t offset, Completion done);
  OperationId Write(int fd, const void* from, size_t size, uint64_t offset, Completion done);
  OperationId ReadVector(int fd, const iovec* to, size_t count, uint64_t offset, Completion done);
  OperationId WriteVector(int fd, const iovec* from, size_t count, uint64_t offset,
                          Completion done);
  OperationId Sync(int fd, bool data_only, Completion done);
  OperationId Allocate(int fd, int mode, uint64_t offset, uint64_t size, Completion done);

  // Sockets. `message` and what it points to live until completion.
  OperationId Accept(int fd, sockaddr* address, socklen_t* length, Completion done);
  OperationId Connect(int fd, const sockaddr* address, socklen_t length, Completion done);
  OperationId ReceiveMessage(int fd, msghdr* message, int flags, Completion done);
  OperationId SendMessage(int fd, const msghdr* message, int flags, Completion done);
  // `done` tells how much was taken; `released` follows when the kernel no longer reads the memory.
  OperationId SendMessageZeroCopy(int fd, const msghdr* message, int flags, Completion done,
                                  Task released);

  // Asks the kernel to give an operation up; its completion is still called (-ECANCELED, or what
  // it reached). Has no effect on an operation that is over.
  void Cancel(OperationId id);

  // Whether the kernel behind this loop can do SendMessageZeroCopy.
  bool has_zero_copy_send() const;

  // Operations handed out and not completed yet.
  size_t in_flight() const;

 private:
  class Ring;
  struct Posted;

  Loop(std::unique_ptr<Ring> ring, int wakeup_fd, std::string name);

  void RunPosted(Posted* replacement);
  void RunDeferred();
  void ArmWakeup();
  void Wait();
  void Drain();

  std::unique_ptr<Ring> ring_;
  TimerQueue timers_;
  std::vector<Task> deferred_;
  BootClock::time_point now_ = BootClock::now();
  const int wakeup_fd_;
  uint64_t wakeup_value_ = 0;
  const std::string name_;

  std::atomic<std::thread::id> thread_{};
  std::atomic<bool> stop_{false};
  // Set by the loop before it waits, taken by the first Post: only that one pays for a wake-up.
  std::atomic<bool> asleep_{false};
  std::atomic<Posted*> posted_{nullptr};  // newest first; a sentinel once the loop has ended
};

// A loop with its own thread. Stops and joins in the destructor.
class LoopThread {
 public:
  static Result<std::unique_ptr<LoopThread>> Start(const Loop::Options& options);
  ~LoopThread();
  Loop& loop() { return *loop_; }

  // Runs `task` on the loop's thread and waits for it. Not from the loop's thread.
  void RunAndWait(Task task);

 private:
  LoopThread(std::unique_ptr<Loop> loop, const std::string& name);

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace fs3
