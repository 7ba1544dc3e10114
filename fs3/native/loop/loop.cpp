#include "fs3/native/loop/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <future>
#include <utility>

#include "fs3/native/loop/ring.h"

namespace fs3 {

struct Loop::Posted {
  Task task;
  Posted* next = nullptr;

  static Posted* Ended() {
    static Posted ended;
    return &ended;
  }
};

Result<std::unique_ptr<Loop>> Loop::Create(const Options& options) {
  auto ring = std::make_unique<Ring>();
  if (Status status = ring->Open(options.queue_depth); !status.ok()) return status;
  const int wakeup_fd = eventfd(0, EFD_CLOEXEC);
  if (wakeup_fd < 0) {
    return Status(Code::kUnavailable, std::string("eventfd: ") + std::strerror(errno));
  }
  return std::unique_ptr<Loop>(new Loop(std::move(ring), wakeup_fd, options.name));
}

Loop::Loop(std::unique_ptr<Ring> ring, int wakeup_fd, std::string name)
    : ring_(std::move(ring)), wakeup_fd_(wakeup_fd), name_(std::move(name)) {}

Loop::~Loop() {
  assert(ring_->in_flight() == 0);
  close(wakeup_fd_);
  // A loop that never ran still holds what was posted to it.
  Posted* posted = posted_.exchange(Posted::Ended());
  while (posted != nullptr && posted != Posted::Ended()) {
    const std::unique_ptr<Posted> dropped(std::exchange(posted, posted->next));
  }
}

void Loop::Run() {
  thread_.store(std::this_thread::get_id());
  ring_->Enable();
  ArmWakeup();
  while (!stop_.load()) {
    RunPosted(nullptr);
    timers_.RunDue(now_);
    RunDeferred();
    Wait();
    now_ = BootClock::now();
    ring_->RunCompleted();
  }
  timers_.Clear();
  Drain();
  RunPosted(Posted::Ended());
  Drain();
}

void Loop::Stop() {
  stop_.store(true);
  Post([] {});
}

bool Loop::InLoopThread() const { return thread_.load() == std::this_thread::get_id(); }

bool Loop::Post(Task task) {
  auto posted = std::make_unique<Posted>(Posted{std::move(task), posted_.load()});
  do {
    if (posted->next == Posted::Ended()) return false;
  } while (!posted_.compare_exchange_weak(posted->next, posted.get()));
  (void)posted.release();  // the list owns it; RunPosted takes it over
  if (asleep_.exchange(false)) {
    const uint64_t one = 1;
    // Cannot fail: the counter would have to reach 2^64 - 1.
    [[maybe_unused]] const ssize_t written = write(wakeup_fd_, &one, sizeof(one));
  }
  return true;
}

void Loop::RunPosted(Posted* replacement) {
  Posted* newest = posted_.exchange(replacement);
  Posted* oldest = nullptr;
  while (newest != nullptr) {
    Posted* next = newest->next;
    newest->next = std::exchange(oldest, newest);
    newest = next;
  }
  while (oldest != nullptr) {
    const std::unique_ptr<Posted> posted(std::exchange(oldest, oldest->next));
    posted->task();
  }
}

void Loop::RunDeferred() {
  // Deferred tasks may defer again; those belong to the same turn.
  while (!deferred_.empty()) {
    std::vector<Task> tasks = std::exchange(deferred_, {});
    for (Task& task : tasks) task();
  }
}

void Loop::ArmWakeup() {
  Read(wakeup_fd_, &wakeup_value_, sizeof(wakeup_value_), 0, [this](int32_t result) {
    if (result != -ECANCELED) ArmWakeup();
  });
}

void Loop::Wait() {
  asleep_.store(true);
  if (posted_.load() != nullptr || !deferred_.empty()) {
    ring_->SubmitAndPoll();
  } else {
    const auto next = timers_.next();
    if (!next) {
      ring_->SubmitAndWait(std::nullopt);
    } else if (const auto delay = *next - BootClock::now(); delay.count() > 0) {
      ring_->SubmitAndWait(delay);
    } else {
      ring_->SubmitAndPoll();
    }
  }
  asleep_.store(false);
}

// Ends every operation. Completions may post, defer or (wrongly, but harmlessly) start others.
void Loop::Drain() {
  RunDeferred();
  while (ring_->in_flight() > 0) {
    ring_->CancelAll();
    ring_->SubmitAndWait(std::chrono::milliseconds(10));
    ring_->RunCompleted();
    RunDeferred();
  }
}

TimerId Loop::StartTimer(BootClock::time_point at, Task task) {
  return timers_.Add(at, std::move(task));
}

OperationId Loop::Read(int fd, void* to, size_t size, uint64_t offset, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_read(sqe, fd, to, static_cast<unsigned>(size), offset);
  return Ring::Finish(sqe, id);
}

OperationId Loop::Write(int fd, const void* from, size_t size, uint64_t offset, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_write(sqe, fd, from, static_cast<unsigned>(size), offset);
  return Ring::Finish(sqe, id);
}

OperationId Loop::ReadVector(int fd, const iovec* to, size_t count, uint64_t offset,
                             Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_readv(sqe, fd, to, static_cast<unsigned>(count), offset);
  return Ring::Finish(sqe, id);
}

OperationId Loop::WriteVector(int fd, const iovec* from, size_t count, uint64_t offset,
                              Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_writev(sqe, fd, from, static_cast<unsigned>(count), offset);
  return Ring::Finish(sqe, id);
}

OperationId Loop::Sync(int fd, bool data_only, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_fsync(sqe, fd, data_only ? IORING_FSYNC_DATASYNC : 0);
  return Ring::Finish(sqe, id);
}

OperationId Loop::Allocate(int fd, int mode, uint64_t offset, uint64_t size, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_fallocate(sqe, fd, mode, static_cast<off_t>(offset), static_cast<off_t>(size));
  return Ring::Finish(sqe, id);
}

OperationId Loop::Accept(int fd, sockaddr* address, socklen_t* length, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_accept(sqe, fd, address, length, SOCK_CLOEXEC);
  return Ring::Finish(sqe, id);
}

OperationId Loop::Connect(int fd, const sockaddr* address, socklen_t length, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_connect(sqe, fd, address, length);
  return Ring::Finish(sqe, id);
}

OperationId Loop::ReceiveMessage(int fd, msghdr* message, int flags, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_recvmsg(sqe, fd, message, static_cast<unsigned>(flags));
  return Ring::Finish(sqe, id);
}

OperationId Loop::SendMessage(int fd, const msghdr* message, int flags, Completion done) {
  auto [sqe, id] = ring_->Begin(std::move(done));
  io_uring_prep_sendmsg(sqe, fd, message, static_cast<unsigned>(flags));
  return Ring::Finish(sqe, id);
}

OperationId Loop::SendMessageZeroCopy(int fd, const msghdr* message, int flags, Completion done,
                                      Task released) {
  auto [sqe, id] = ring_->Begin(std::move(done), std::move(released));
  io_uring_prep_sendmsg_zc(sqe, fd, message, static_cast<unsigned>(flags));
  return Ring::Finish(sqe, id);
}

void Loop::Cancel(OperationId id) { ring_->Cancel(id); }

bool Loop::has_zero_copy_send() const { return ring_->has_zero_copy_send(); }

size_t Loop::in_flight() const { return ring_->in_flight(); }

Result<std::unique_ptr<LoopThread>> LoopThread::Start(const Loop::Options& options) {
  auto loop = Loop::Create(options);
  if (!loop.ok()) return loop.status();
  return std::unique_ptr<LoopThread>(new LoopThread(std::move(loop.value()), options.name));
}

LoopThread::LoopThread(std::unique_ptr<Loop> loop, const std::string& name)
    : loop_(std::move(loop)) {
  // Signals belong to the threads of the application (Python's main thread).
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  thread_ = std::thread([loop = loop_.get()] { loop->Run(); });
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  constexpr size_t kThreadNameMax = 15;  // of the kernel
  pthread_setname_np(thread_.native_handle(), name.substr(0, kThreadNameMax).c_str());
}

void LoopThread::RunAndWait(Task task) {
  std::promise<void> done;
  loop_->Post([&task, &done] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

LoopThread::~LoopThread() {
  loop_->Stop();
  thread_.join();
}

}  // namespace fs3
