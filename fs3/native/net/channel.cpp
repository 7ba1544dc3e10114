#include "fs3/native/net/channel.h"

#include <algorithm>
#include <utility>

#include "fs3/native/net/counters.h"

namespace fs3 {
namespace {

Reply Failed(const Status& status) {
  Reply reply;
  reply.code = status.code();
  const std::string& text = status.message();
  reply.body = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  return reply;
}

}  // namespace

std::shared_ptr<Channel> Channel::Create(Loop& loop, Transport& transport, const Endpoint& to,
                                         const Identity& self, const Options& options) {
  return std::shared_ptr<Channel>(new Channel(loop, transport, to, self, options));
}

Channel::Channel(Loop& loop, Transport& transport, const Endpoint& to, const Identity& self,
                 const Options& options)
    : loop_(loop), transport_(transport), to_(to), self_(self), options_(options) {}

void Channel::Call(Request request) {
  if (const Status refused = Admit(); !refused.ok()) {
    return FailLater(std::move(request.on_reply), refused);
  }
  const uint64_t id = next_id_++;
  Pending& pending = pending_[id];
  pending.place_bulk = std::move(request.place_bulk);
  pending.on_reply = std::move(request.on_reply);
  pending.deadline = loop_.StartTimer(request.timeout, [this, id] { OnDeadline(id); });
  if (state_ == State::kReady) {
    Send(id, request.method, request.body, std::move(request.bulk), request.bulk_crc32c);
    return;
  }
  waiting_.push_back({id,
                      request.method,
                      {request.body.begin(), request.body.end()},
                      std::move(request.bulk),
                      request.bulk_crc32c});
  if (state_ == State::kIdle) Connect();
}

Status Channel::Admit() const {
  if (state_ == State::kClosed) return {Code::kUnavailable, to_.Text() + ": channel closed"};
  if (pending_.size() >= options_.requests_max || queued_bytes() >= options_.queued_bytes_max) {
    ThreadCounters().requests_refused_busy.Add();
    return {Code::kBusy, to_.Text() + ": too many requests in flight"};
  }
  if (state_ == State::kIdle && loop_.now() < retry_at_) return last_failure_;
  return Status::Ok();
}

void Channel::Open(Function<void(const Status&)> done) {
  on_opened_.push_back(std::move(done));
  Status status = state_ == State::kReady ? Status::Ok() : Admit();
  if (!status.ok() || state_ == State::kReady) {
    loop_.Defer([self = shared_from_this(), status] { self->TellOpened(status); });
  } else if (state_ == State::kIdle) {
    Connect();
  }
}

void Channel::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (connection_ != nullptr) {
    connection_->Close();  // OnClosed fails the requests once their memory is free
  } else {
    loop_.Defer([self = shared_from_this()] {
      self->FailAll({Code::kUnavailable, self->to_.Text() + ": channel closed"});
    });
  }
}

size_t Channel::queued_bytes() const {
  return connection_ == nullptr ? 0 : connection_->queued_bytes();
}

std::shared_ptr<ConnectionHandler> Channel::AsHandler() { return {shared_from_this(), this}; }

// ---- connecting

void Channel::Connect() {
  state_ = State::kConnecting;
  ThreadCounters().connections_opened.Add();
  if (was_ready_) ThreadCounters().reconnects.Add();
  transport_.Connect(loop_, to_, options_.connect_timeout,
                     [self = shared_from_this()](Result<std::unique_ptr<Stream>> stream) {
                       self->OnConnected(std::move(stream));
                     });
}

void Channel::OnConnected(Result<std::unique_ptr<Stream>> stream) {
  if (state_ == State::kClosed) return;
  if (!stream.ok()) return ConnectFailed(stream.status());
  state_ = State::kGreeting;
  connection_ = Connection::Start(loop_, std::move(stream.value()), Connection::Role::kClient,
                                  self_, options_.limits, AsHandler());
}

void Channel::ConnectFailed(const Status& status) {
  state_ = State::kIdle;
  backoff_ = std::clamp(backoff_ * 2, options_.backoff_first, options_.backoff_max);
  retry_at_ = loop_.now() + backoff_;
  last_failure_ = status;
  FailAll(status);
}

void Channel::OnReady(Connection& connection) {
  if (state_ == State::kClosed) return;
  state_ = State::kReady;
  peer_ = connection.peer();
  was_ready_ = true;
  backoff_ = std::chrono::nanoseconds(0);
  TellOpened(Status::Ok());
  while (!waiting_.empty() && state_ == State::kReady) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    if (!pending_.contains(waiting.id)) continue;  // its deadline has passed
    Send(waiting.id, waiting.method, waiting.body, std::move(waiting.bulk), waiting.bulk_crc32c);
  }
}

void Channel::OnClosed(Connection&, CloseReason, const Status& status) {
  connection_.reset();
  if (state_ == State::kClosed) return FailAll(status);
  if (state_ == State::kGreeting) return ConnectFailed(status);
  state_ = State::kIdle;
  FailAll({Code::kUnavailable, status.message()});
}

void Channel::TellOpened(const Status& status) {
  for (auto& done : std::exchange(on_opened_, {})) done(status);
}

// ---- requests

void Channel::Send(uint64_t id, uint16_t method, std::span<const uint8_t> body,
                   std::vector<iovec> bulk, std::optional<uint32_t> bulk_crc32c) {
  OutBulk out;
  if (!bulk.empty()) {
    out.pieces = std::move(bulk);
    out.crc32c = bulk_crc32c;
    out.on_released = [self = shared_from_this(), id] { self->OnBulkReleased(id); };
    pending_.at(id).bulk_in_queue = true;
  }
  const Status status = connection_->SendRequest(method, id, body, std::move(out));
  if (status.ok()) return;
  loop_.Defer([self = shared_from_this(), id, status] { self->FinishWith(id, status); });
}

void Channel::OnBulkReleased(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  pending.bulk_in_queue = false;
  if (pending.early_reply != nullptr) {
    const std::unique_ptr<EarlyReply> early = std::move(pending.early_reply);
    early->reply.body = early->body;
    Finish(id, early->reply);
  } else if (pending.expired) {
    OnDeadline(id);
  }
}

void Channel::OnDeadline(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  pending.expired = true;
  if (pending.bulk_in_queue || pending.receiving) return;
  ThreadCounters().requests_expired.Add();
  FinishWith(id, {Code::kTimedOut, to_.Text() + ": no reply within the deadline"});
}

BulkTarget Channel::OnBulk(Connection&, const FrameHeader& header, std::span<const uint8_t> body) {
  const auto found = pending_.find(header.request_id);
  if (found == pending_.end()) return BulkTarget::Discard();
  Pending& pending = found->second;
  pending.receiving = true;
  if (!pending.place_bulk) return BulkTarget::Into(Buffer::Allocate(header.bulk_length));
  return pending.place_bulk(header, body);
}

void Channel::OnFrame(Connection&, Frame& frame) {
  Reply reply;
  reply.code = frame.header.code();
  reply.from_server = true;
  reply.header = frame.header;
  reply.body = frame.body;
  reply.bulk = std::move(frame.bulk);
  const auto found = pending_.find(frame.header.request_id);
  if (found == pending_.end() || !found->second.bulk_in_queue) {
    return Finish(frame.header.request_id, reply);
  }
  // The kernel has not told yet that it is through with the request's memory.
  std::vector<uint8_t> body(frame.body.begin(), frame.body.end());
  found->second.receiving = false;
  found->second.early_reply =
      std::make_unique<EarlyReply>(EarlyReply{std::move(reply), std::move(body)});
}

void Channel::Finish(uint64_t id, Reply& reply) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return ThreadCounters().late_replies.Add();
  Pending pending = std::move(found->second);
  pending_.erase(found);
  loop_.CancelTimer(pending.deadline);
  pending.on_reply(reply);
}

void Channel::FinishWith(uint64_t id, const Status& status) {
  Reply reply = Failed(status);
  Finish(id, reply);
}

// Only while no memory of a request is in use.
void Channel::FailAll(const Status& status) {
  waiting_.clear();
  const Status expired(Code::kTimedOut, status.message());
  for (auto& [id, pending] : std::exchange(pending_, {})) {
    loop_.CancelTimer(pending.deadline);
    Reply reply = Failed(pending.expired ? expired : status);
    pending.on_reply(reply);
  }
  TellOpened(status);
}

void Channel::FailLater(Function<void(Reply&)> on_reply, Status status) {
  loop_.Defer([on_reply = std::move(on_reply), status = std::move(status)]() mutable {
    Reply reply = Failed(status);
    on_reply(reply);
  });
}

}  // namespace fs3
