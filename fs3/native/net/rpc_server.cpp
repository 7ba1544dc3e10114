#include "fs3/native/net/rpc_server.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "fs3/native/net/counters.h"

namespace fs3 {

// The handler of the connections, on the loop's thread, and the queue between it and the pollers.
class RpcServer::Service : public ConnectionHandler {
 public:
  Service(Loop& loop, const Options& options) : loop_(loop), options_(options) {}

  // ---- loop thread

  void OnReady(Connection& connection) override {
    connection.context = std::make_shared<Unanswered>();
  }

  BulkTarget OnBulk(Connection&, const FrameHeader&, std::span<const uint8_t>) override {
    return BulkTarget::Discard();  // these methods have none
  }

  void OnFrame(Connection& connection, Frame& frame) override {
    const FrameHeader& header = frame.header;
    if (!Admit(connection, frame)) {
      ThreadCounters().requests_refused_busy.Add();
      (void)connection.SendError(header, {Code::kBusy, "the server's request queue is full"});
      return;
    }
    UnansweredOf(connection)[header.request_id] = header.method;
    // One wake-up for all the requests of this turn.
    if (std::exchange(wake_scheduled_, true)) return;
    loop_.Defer([this] {
      wake_scheduled_ = false;
      available_.notify_one();
    });
  }

  void OnClosed(Connection&, CloseReason, const Status&) override {}

  void Send(const Listener& listener, const RpcReply& reply) {
    const auto connection = listener.Find(reply.connection_id);
    if (connection == nullptr || connection->context == nullptr) return;
    Unanswered& unanswered = UnansweredOf(*connection);
    const auto found = unanswered.find(reply.request_id);
    if (found == unanswered.end()) return;
    FrameHeader request;
    request.request_id = found->first;
    request.method = found->second;
    unanswered.erase(found);
    const std::span body(reinterpret_cast<const uint8_t*>(reply.body.data()), reply.body.size());
    const Status sent = connection->SendReply(request, static_cast<Code>(reply.status), body);
    if (sent.code() == Code::kInvalidArgument) {
      (void)connection->SendError(request, {Code::kInternal, "reply: " + sent.message()});
    }
  }

  // ---- any thread

  std::vector<RpcRequest> Take(size_t count_max, std::chrono::nanoseconds timeout) {
    std::vector<RpcRequest> taken;
    std::unique_lock lock(mutex_);
    available_.wait_for(lock, timeout, [this] { return !queue_.empty() || closed_; });
    while (!queue_.empty() && taken.size() < count_max) {
      queued_bytes_ -= queue_.front().body.size();
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    if (!queue_.empty()) available_.notify_one();  // for another poller
    return taken;
  }

  bool is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    queue_.clear();
    available_.notify_all();
  }

 private:
  using Unanswered = std::unordered_map<uint64_t, uint16_t>;  // request id -> method

  static Unanswered& UnansweredOf(Connection& connection) {
    return *static_cast<Unanswered*>(connection.context.get());
  }

  bool Admit(Connection& connection, const Frame& frame) {
    const std::lock_guard lock(mutex_);
    if (closed_ || queue_.size() >= options_.queue_length_max ||
        queued_bytes_ + frame.body.size() > options_.queue_bytes_max) {
      return false;
    }
    queued_bytes_ += frame.body.size();
    queue_.push_back({connection.id(), frame.header.request_id, frame.header.method,
                      std::string(frame.body.begin(), frame.body.end()), connection.peer().kind,
                      connection.peer().incarnation});
    return true;
  }

  Loop& loop_;
  const Options options_;
  bool wake_scheduled_ = false;  // of the loop's thread

  std::mutex mutex_;
  std::condition_variable available_;
  std::deque<RpcRequest> queue_;
  size_t queued_bytes_ = 0;
  bool closed_ = false;
};

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const Endpoint& at, const Identity& self,
                                                    const Options& options) {
  const auto endpoint = ResolveEndpoint(at);
  if (!endpoint.ok()) return endpoint.status();
  auto thread = LoopThread::Start({.name = "fs3-rpc"});
  if (!thread.ok()) return thread.status();
  Loop& loop = thread.value()->loop();
  auto service = std::make_shared<Service>(loop, options);
  auto server = std::unique_ptr<RpcServer>(new RpcServer(std::move(thread.value()), service));
  Status status;
  server->thread_->RunAndWait([&] {
    auto listener = Listener::Open(loop, TcpTransport(), endpoint.value(), self, {}, service);
    status = listener.status();
    if (listener.ok()) server->listener_ = std::move(listener.value());
  });
  if (!status.ok()) return status;
  server->port_ = server->listener_->port();
  return server;
}

RpcServer::RpcServer(std::unique_ptr<LoopThread> thread, std::shared_ptr<Service> service)
    : thread_(std::move(thread)), service_(std::move(service)), process_(getpid()) {}

RpcServer::~RpcServer() {
  Close();
  if (getpid() == process_) return;
  // The loop's thread does not exist in a forked child; its memory is left alone.
  (void)thread_.release();
  (void)listener_.release();
  (void)std::make_unique<std::shared_ptr<Service>>(std::move(service_)).release();
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): on purpose

std::vector<RpcRequest> RpcServer::Poll(size_t count_max, std::chrono::nanoseconds timeout) {
  if (getpid() != process_) return {};
  return service_->Take(count_max, timeout);
}

void RpcServer::Reply(std::vector<RpcReply> replies) {
  if (getpid() != process_) return;
  thread_->loop().Post([this, replies = std::move(replies)] {
    if (listener_ == nullptr) return;
    for (const RpcReply& reply : replies) service_->Send(*listener_, reply);
  });
}

bool RpcServer::is_closed() const { return getpid() != process_ || service_->is_closed(); }

void RpcServer::Close() {
  if (getpid() != process_) return;
  service_->Close();
  thread_->RunAndWait([this] { listener_.reset(); });
}

}  // namespace fs3
