#include "fs3/native/server/server_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <iterator>
#include <utility>

namespace fs3 {

ServerEventQueue::ServerEventQueue() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ServerEventQueue::~ServerEventQueue() { close(fd_); }

void ServerEventQueue::Push(ServerEvent event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() >= kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
  eventfd_write(fd_, 1);
  arrived_.notify_one();
}

std::vector<ServerEvent> ServerEventQueue::Take(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, timeout, [this] { return !events_.empty(); });
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
  std::vector<ServerEvent> taken(std::make_move_iterator(events_.begin()),
                                 std::make_move_iterator(events_.end()));
  events_.clear();
  return taken;
}

}  // namespace fs3
