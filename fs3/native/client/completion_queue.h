// Finished tickets on their way to a caller that did not wait for them.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fs3 {

class Ticket;

// One thread pushes, any thread takes. Bounded by the tickets that were submitted.
class CompletionQueue {
 public:
  CompletionQueue() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~CompletionQueue() { close(fd_); }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  void Push(std::shared_ptr<Ticket> ticket) {
    const std::lock_guard lock(mutex_);
    tickets_.push_back(std::move(ticket));
    eventfd_write(fd_, 1);
    arrived_.notify_one();
  }

  // Waits for the first, up to `timeout`, and takes all there are.
  std::vector<std::shared_ptr<Ticket>> Take(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [this] { return !tickets_.empty(); });
    eventfd_t count = 0;
    eventfd_read(fd_, &count);
    return std::exchange(tickets_, {});
  }

  // Readable while tickets wait.
  int fd() const { return fd_; }

 private:
  const int fd_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Ticket>> tickets_;  // guarded by mutex_
};

}  // namespace fs3
