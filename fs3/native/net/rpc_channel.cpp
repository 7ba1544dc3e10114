#include "fs3/native/net/rpc_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <future>
#include <utility>

namespace fs3 {
namespace {

// The loop thread of this process's channels: made for the first, ended with the last.
Result<std::shared_ptr<LoopThread>> SharedLoopThread() {
  static std::mutex mutex;
  static int process = 0;
  static std::weak_ptr<LoopThread> shared;
  const std::lock_guard lock(mutex);
  if (process != getpid()) {  // a forked child starts anew; its parent's thread is not here
    process = getpid();
    shared.reset();
  }
  if (auto running = shared.lock()) return running;
  auto started = LoopThread::Start({.name = "fs3-rpc-client"});
  if (!started.ok()) return started.status();
  std::shared_ptr<LoopThread> thread = std::move(started.value());
  shared = thread;
  return thread;
}

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

RpcOutcome OutcomeOf(const Reply& reply) {
  return {static_cast<uint32_t>(reply.code), !reply.from_server || reply.header.is_text(),
          std::string(reply.body.begin(), reply.body.end())};
}

RpcOutcome ClosedOutcome() {
  return {static_cast<uint32_t>(Code::kUnavailable), true,
          "the channel is closed, or was made before fork()"};
}

}  // namespace

RpcBatch::RpcBatch(const std::vector<RpcCall>& calls)
    : calls_(calls), outcomes_(calls.size()), unfinished_(calls.size()) {
  size_t total = 0;
  for (const RpcCall& call : calls_) total += call.body.size();
  bodies_.reserve(total);
  for (RpcCall& call : calls_) {
    const size_t at = bodies_.size();
    bodies_.append(call.body);
    call.body = std::string_view(bodies_).substr(at);
  }
}

bool RpcBatch::Wait(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, timeout, [this] { return unfinished_ == 0; });
}

void RpcBatch::Finish(size_t index, RpcOutcome outcome) {
  outcomes_[index] = std::move(outcome);
  {
    const std::lock_guard lock(mutex_);
    if (--unfinished_ > 0) return;
  }
  done_.notify_all();
}

class RpcChannel::Completions {
 public:
  Completions() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Completions() { close(fd_); }

  void Add(RpcCompletion completion) {
    const std::lock_guard lock(mutex_);
    const bool was_empty = ready_.empty();
    ready_.push_back(std::move(completion));
    if (was_empty) eventfd_write(fd_, 1);
  }

  std::vector<RpcCompletion> Take() {
    const std::lock_guard lock(mutex_);
    eventfd_t value;
    if (!ready_.empty()) eventfd_read(fd_, &value);
    return std::exchange(ready_, {});
  }

  int fd() const { return fd_; }

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<RpcCompletion> ready_;
};

Result<std::unique_ptr<RpcChannel>> RpcChannel::Connect(const Endpoint& to, const Identity& self,
                                                        std::chrono::nanoseconds connect_timeout) {
  const auto endpoint = ResolveEndpoint(to);
  if (!endpoint.ok()) return endpoint.status();
  const auto thread = SharedLoopThread();
  if (!thread.ok()) return thread.status();
  Loop& loop = thread.value()->loop();
  Channel::Options options;
  options.connect_timeout = connect_timeout;
  const auto channel = Channel::Create(loop, TcpTransport(), endpoint.value(), self, options);
  auto result = std::unique_ptr<RpcChannel>(new RpcChannel(thread.value(), channel));
  std::promise<Status> opened;
  loop.Post([&] { channel->Open([&](const Status& status) { opened.set_value(status); }); });
  const Status status = opened.get_future().get();
  if (!status.ok()) return status;
  return result;
}

RpcChannel::RpcChannel(std::shared_ptr<LoopThread> thread, std::shared_ptr<Channel> channel)
    : thread_(std::move(thread)),
      channel_(std::move(channel)),
      completions_(std::make_shared<Completions>()),
      process_(getpid()) {}

RpcChannel::~RpcChannel() {
  Close();
  if (getpid() == process_) return;
  // In a forked child the loop's memory is left alone: its thread does not exist here.
  // NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks): on purpose
  (void)std::make_unique<std::shared_ptr<LoopThread>>(std::move(thread_)).release();
  (void)std::make_unique<std::shared_ptr<Channel>>(std::move(channel_)).release();
}
// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

bool RpcChannel::Post(Task task) {
  return getpid() == process_ && !closed_.load() && thread_->loop().Post(std::move(task));
}

std::shared_ptr<RpcBatch> RpcChannel::Start(const std::vector<RpcCall>& calls,
                                            std::chrono::nanoseconds timeout) {
  auto batch = std::make_shared<RpcBatch>(calls);
  const bool posted = Post([channel = channel_, batch, timeout] {
    for (size_t index = 0; index < batch->calls_.size(); ++index) {
      Request request;
      request.method = batch->calls_[index].method;
      request.body = AsBytes(batch->calls_[index].body);
      request.timeout = timeout;
      request.on_reply = [batch, index](Reply& reply) { batch->Finish(index, OutcomeOf(reply)); };
      channel->Call(std::move(request));
    }
  });
  for (size_t index = 0; !posted && index < calls.size(); ++index) {
    batch->Finish(index, ClosedOutcome());
  }
  return batch;
}

uint64_t RpcChannel::Submit(const RpcCall& call, std::chrono::nanoseconds timeout) {
  const uint64_t id = next_id_.fetch_add(1);
  const bool posted = Post([channel = channel_, completions = completions_, id, timeout,
                            method = call.method, body = std::string(call.body)] {
    Request request;
    request.method = method;
    request.body = AsBytes(body);
    request.timeout = timeout;
    request.on_reply = [completions, id](Reply& reply) {
      completions->Add({id, OutcomeOf(reply)});
    };
    channel->Call(std::move(request));
  });
  if (!posted) completions_->Add({id, ClosedOutcome()});
  return id;
}

std::vector<RpcCompletion> RpcChannel::Completed() { return completions_->Take(); }

int RpcChannel::completion_fd() const { return completions_->fd(); }

Identity RpcChannel::peer() {
  Identity peer;
  if (getpid() == process_ && !closed_.load()) {
    thread_->RunAndWait([&] { peer = channel_->peer(); });
  }
  return peer;
}

void RpcChannel::Close() {
  if (getpid() != process_ || closed_.exchange(true)) return;
  thread_->RunAndWait([this] { channel_->Close(); });
}

}  // namespace fs3
