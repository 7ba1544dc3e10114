#include "fs3/native/net/connection.h"

#include <errno.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "fs3/native/net/counters.h"

namespace fs3 {
namespace {

uint64_t NextConnectionId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

FrameHeader ReplyTo(const FrameHeader& request, Code status, uint8_t flags = 0) {
  FrameHeader header;
  header.flags = kFlagResponse | flags;
  header.method = request.method;
  header.request_id = request.request_id;
  header.status = static_cast<uint32_t>(status);
  return header;
}

Hello HelloOf(const Identity& self) { return {kProtocolMin, kProtocolMax, self, {}}; }

}  // namespace

std::shared_ptr<Connection> Connection::Start(Loop& loop, std::unique_ptr<Stream> stream, Role role,
                                              const Identity& self, const Limits& limits,
                                              std::shared_ptr<ConnectionHandler> handler) {
  auto connection = std::shared_ptr<Connection>(
      new Connection(loop, std::move(stream), role, self, limits, std::move(handler)));
  connection->Greet();
  return connection;
}

Connection::Connection(Loop& loop, std::unique_ptr<Stream> stream, Role role, const Identity& self,
                       const Limits& limits, std::shared_ptr<ConnectionHandler> handler)
    : loop_(loop),
      stream_(std::move(stream)),
      role_(role),
      self_(self),
      limits_(limits),
      handler_(std::move(handler)),
      id_(NextConnectionId()),
      receiver_(*this),
      last_progress_(loop.now()) {}

// ---- what the owner calls

Status Connection::SendRequest(uint16_t method, uint64_t request_id, std::span<const uint8_t> body,
                               OutBulk bulk) {
  FrameHeader header;
  header.method = method;
  header.request_id = request_id;
  return Enqueue(header, body, std::move(bulk));
}

Status Connection::SendReply(const FrameHeader& request, Code status, std::span<const uint8_t> body,
                             OutBulk bulk) {
  return Enqueue(ReplyTo(request, status), body, std::move(bulk));
}

Status Connection::SendError(const FrameHeader& request, const Status& status) {
  return Enqueue(ReplyTo(request, status.code(), kFlagText), AsBytes(status.message()), {});
}

void Connection::PauseReceive() {
  paused_by_owner_ = true;
  receiver_.Pause();
}

void Connection::ResumeReceive() {
  paused_by_owner_ = false;
  if (is_closing() || paused_by_queue_) return;
  Continue(receiver_.Resume());
}

void Connection::Close() { Fail(CloseReason::kLocal, {Code::kUnavailable, "connection closed"}); }

// ---- handshake

void Connection::Greet() {
  if (role_ == Role::kClient) {
    const auto body = EncodeHello(HelloOf(self_));
    FrameHeader header;
    header.method = kMethodHello;
    send_queue_.Push(header, body, {});
    ScheduleSend();
  }
  StartReceive();
}

void Connection::Answer(const FrameHeader& hello, Code status, const std::string& reason) {
  Hello answer = HelloOf(self_);
  answer.reason = reason;
  send_queue_.Push(ReplyTo(hello, status), EncodeHello(answer), {});
  ScheduleSend();
}

void Connection::OnHello(const Frame& frame) {
  const bool expected = frame.header.method == kMethodHello && frame.header.bulk_length == 0 &&
                        frame.header.is_response() == (role_ == Role::kClient);
  if (!expected) return FailMalformed(Malformed::kUnexpected);
  if (role_ == Role::kServer) {
    AcceptHello(frame);
  } else {
    CheckHelloAnswer(frame);
  }
}

void Connection::AcceptHello(const Frame& frame) {
  const auto theirs = DecodeHello(frame.body);
  if (!theirs.ok()) return RefuseHello(theirs.status());
  const auto protocol = NegotiateHello(HelloOf(self_), theirs.value());
  if (!protocol.ok()) return RefuseHello(protocol.status());
  Answer(frame.header, Code::kOk, {});
  BecomeReady(theirs.value().identity, protocol.value());
}

// Tells the peer why, then closes.
void Connection::RefuseHello(const Status& status) {
  ThreadCounters().handshakes_refused.Add();
  FrameHeader hello;
  hello.method = kMethodHello;
  Answer(hello, status.code(), status.message());
  close_reason_ = CloseReason::kHandshake;
  close_status_ = status;
  close_when_sent_ = true;
  receiver_.Pause();
}

void Connection::CheckHelloAnswer(const Frame& frame) {
  const auto theirs = DecodeHello(frame.body);
  if (!theirs.ok()) return Fail(CloseReason::kHandshake, theirs.status());
  if (frame.header.status != 0) {
    return Fail(CloseReason::kHandshake, {frame.header.code(), theirs.value().reason});
  }
  const auto protocol = NegotiateHello(theirs.value(), HelloOf(self_));
  if (!protocol.ok()) return Fail(CloseReason::kHandshake, protocol.status());
  BecomeReady(theirs.value().identity, protocol.value());
}

void Connection::BecomeReady(const Identity& peer, uint8_t protocol_version) {
  peer_ = peer;
  features_ = peer.features & self_.features;
  protocol_version_ = protocol_version;
  state_ = State::kReady;
  handler_->OnReady(*this);
}

// ---- receiving

BulkTarget Connection::OnBulk(const FrameHeader& header, std::span<const uint8_t> body) {
  if (state_ != State::kReady || header.is_response() != (role_ == Role::kClient)) {
    return BulkTarget::Discard();  // OnFrame refuses it
  }
  return handler_->OnBulk(*this, header, body);
}

void Connection::OnFrame(Frame& frame) {
  ThreadCounters().frames_received.Add();
  if (state_ == State::kGreeting) return OnHello(frame);
  const FrameHeader& header = frame.header;
  if (header.is_response() != (role_ == Role::kClient) || header.method == kMethodHello) {
    return FailMalformed(Malformed::kUnexpected);
  }
  if (header.method == kMethodPing && role_ == Role::kServer) {
    (void)SendReply(header, Code::kOk, frame.body);
    return;
  }
  handler_->OnFrame(*this, frame);
}

bool Connection::wants_receive() const {
  return !receiving_ && !receiver_.is_paused() && !receiver_.is_processing() && !is_closing();
}

void Connection::StartReceive() {
  if (!wants_receive()) return;
  receiving_ = true;
  const auto targets = receiver_.Targets();
  ThreadCounters().receive_calls.Add();
  stream_->Receive(targets.data(), targets.size(),
                   [self = shared_from_this()](int32_t result) { self->OnReceived(result); });
  Watch();
}

void Connection::OnReceived(int32_t result) {
  receiving_ = false;
  if (is_closing()) return FinishCloseIfIdle();
  if (result == -EINTR || result == -EAGAIN) return StartReceive();
  if (result == 0) return Fail(CloseReason::kPeer, {Code::kUnavailable, "closed by the peer"});
  if (result < 0) {
    return Fail(CloseReason::kPeer, {Code::kUnavailable, std::strerror(-result)});
  }
  last_progress_ = loop_.now();
  ThreadCounters().bytes_received.Add(static_cast<uint64_t>(result));
  Continue(receiver_.Advance(static_cast<size_t>(result)));
}

void Connection::Continue(Malformed malformed) {
  if (is_closing()) return;
  if (malformed != Malformed::kNone) return FailMalformed(malformed);
  StartReceive();
}

// ---- sending

Status Connection::Enqueue(FrameHeader header, std::span<const uint8_t> body, OutBulk bulk) {
  size_t bulk_length = 0;
  for (const iovec& piece : bulk.pieces) bulk_length += piece.iov_len;
  Status status;
  if (state_ != State::kReady) {
    status = {Code::kUnavailable, "not connected to " + PeerText()};
  } else if (body.size() > kBodyLengthMax || bulk_length > kBulkLengthMax) {
    status = {Code::kInvalidArgument, "frame of " + std::to_string(body.size()) + " + " +
                                          std::to_string(bulk_length) + " bytes is too large"};
  }
  if (!status.ok()) {
    if (bulk.on_released) bulk.on_released();
    return status;
  }
  header.protocol_version = protocol_version_;
  send_queue_.Push(header, body, std::move(bulk));
  ThreadCounters().frames_sent.Add();
  UpdateMarks();
  ScheduleSend();
  return status;
}

void Connection::ScheduleSend() {
  if (sending_ || send_scheduled_ || is_closing()) return;
  send_scheduled_ = true;
  loop_.Defer([self = shared_from_this()] {
    self->send_scheduled_ = false;
    self->StartSend();
  });
}

void Connection::StartSend() {
  if (sending_ || is_closing() || send_queue_.empty()) return;
  sending_ = true;
  const size_t count = send_queue_.Gather(send_iovecs_, kSendBytesMax);
  ThreadCounters().send_calls.Add();
  const bool in_place =
      limits_.zero_copy_min_bytes > 0 && send_queue_.queued_bytes() >= limits_.zero_copy_min_bytes;
  if (in_place && stream_->has_zero_copy()) {
    ThreadCounters().zero_copy_sends.Add();
    auto send = std::make_shared<ZeroCopySend>();
    zero_copy_sends_.push_back(send);
    stream_->SendZeroCopy(
        send_iovecs_.data(), count,
        [self = shared_from_this(), send](int32_t result) { self->OnZeroCopySent(send, result); },
        [self = shared_from_this(), send] {
          send->released = true;
          self->ReleaseZeroCopy();
        });
  } else {
    stream_->Send(send_iovecs_.data(), count,
                  [self = shared_from_this()](int32_t result) { self->OnSent(result); });
  }
  last_progress_ = loop_.now();
  Watch();
}

void Connection::OnSent(int32_t result) {
  sending_ = false;
  SendQueue::Sent sent;
  const bool goes_on = AdvanceSend(result, sent);
  send_queue_.Release(std::move(sent));
  if (goes_on) ContinueSend();
}

void Connection::OnZeroCopySent(const std::shared_ptr<ZeroCopySend>& send, int32_t result) {
  sending_ = false;
  const bool goes_on = AdvanceSend(result, send->sent);
  if (goes_on) ContinueSend();
}

// Releases come back in any order, but a frame may have left with several sends, the last of which
// carries its release: so they are honoured in the order of the sends.
void Connection::ReleaseZeroCopy() {
  while (!zero_copy_sends_.empty() && zero_copy_sends_.front()->released) {
    const auto send = std::move(zero_copy_sends_.front());
    zero_copy_sends_.pop_front();
    send_queue_.Release(std::move(send->sent));
  }
  FinishCloseIfIdle();
}

// Accounts for a send that has ended. False when the connection is closing.
bool Connection::AdvanceSend(int32_t result, SendQueue::Sent& sent) {
  if (is_closing()) {
    FinishCloseIfIdle();
    return false;
  }
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    Fail(CloseReason::kPeer, {Code::kUnavailable, std::strerror(-result)});
    return false;
  }
  if (result > 0) {
    last_progress_ = loop_.now();
    ThreadCounters().bytes_sent.Add(static_cast<uint64_t>(result));
    sent = send_queue_.Advance(static_cast<size_t>(result));
  }
  return true;
}

void Connection::ContinueSend() {
  UpdateMarks();
  if (send_queue_.empty() && close_when_sent_) return Close();
  ScheduleSend();
}

// A server whose replies are not taken stops reading requests. A client goes on reading replies
// whatever it has to send: if both stopped, neither would ever go on.
void Connection::UpdateMarks() {
  if (is_closing()) return;
  const size_t queued = send_queue_.queued_bytes();
  if (queued > limits_.send_queue_max_bytes && role_ == Role::kServer) {
    return Fail(CloseReason::kOverflow, {Code::kUnavailable, "the peer does not take its replies"});
  }
  if (!above_high_mark_ && queued > limits_.send_queue_high_bytes) {
    above_high_mark_ = true;
    if (role_ == Role::kServer) {
      paused_by_queue_ = true;
      receiver_.Pause();
    }
  } else if (above_high_mark_ && queued <= limits_.send_queue_low_bytes) {
    above_high_mark_ = false;
    paused_by_queue_ = false;
    handler_->OnDrained(*this);
    if (!paused_by_owner_ && !is_closing() && role_ == Role::kServer) {
      Continue(receiver_.Resume());
    }
  }
}

// ---- progress and end

bool Connection::is_inside_frame() const {
  return sending_ || state_ == State::kGreeting || (receiving_ && receiver_.inside_frame());
}

void Connection::Watch() {
  if (watch_timer_ != 0 || !is_inside_frame() || is_closing()) return;
  watch_timer_ = loop_.StartTimer(last_progress_ + limits_.stall_timeout, [this] {
    watch_timer_ = 0;
    CheckProgress();
  });
}

void Connection::CheckProgress() {
  if (is_inside_frame() && loop_.now() - last_progress_ >= limits_.stall_timeout) {
    const char* what = state_ == State::kGreeting ? "no HELLO from the peer"
                                                  : "no progress in the middle of a frame";
    return Fail(CloseReason::kStalled, {Code::kUnavailable, what});
  }
  Watch();
}

void Connection::FailMalformed(Malformed malformed) {
  malformed_ = malformed;
  ThreadCounters().malformed[static_cast<size_t>(malformed)].Add();
  const bool greeting = state_ == State::kGreeting;
  if (malformed == Malformed::kProtocolVersion && greeting && role_ == Role::kServer) {
    return RefuseHello({Code::kVersionMismatch, "the client speaks an fs3rpc protocol outside " +
                                                    std::to_string(kProtocolMin) + ".." +
                                                    std::to_string(kProtocolMax)});
  }
  if (malformed == Malformed::kMagic && greeting) {
    return Fail(CloseReason::kMalformed,
                {Code::kVersionMismatch, "the peer does not speak fs3rpc"});
  }
  Fail(CloseReason::kMalformed,
       {Code::kCorrupt, "malformed frame: " + std::string(MalformedName(malformed))});
}

void Connection::Fail(CloseReason reason, Status status) {
  if (is_closing()) return;
  state_ = State::kClosing;
  if (!close_when_sent_) {
    close_reason_ = reason;
    close_status_ = std::move(status);
  }
  close_status_ = Status(close_status_.code(), PeerText() + ": " + close_status_.message());
  ThreadCounters().connections_closed.Add();
  if (reason == CloseReason::kStalled) ThreadCounters().connections_stalled.Add();
  if (reason == CloseReason::kOverflow) ThreadCounters().connections_overflowed.Add();
  receiver_.Pause();
  loop_.CancelTimer(watch_timer_);
  stream_->Shutdown();
  FinishCloseIfIdle();
}

void Connection::FinishCloseIfIdle() {
  const bool idle = !receiving_ && !sending_ && zero_copy_sends_.empty();
  if (state_ != State::kClosing || !idle || finish_scheduled_) return;
  finish_scheduled_ = true;
  loop_.Defer([self = shared_from_this()] { self->FinishClose(); });
}

void Connection::FinishClose() {
  state_ = State::kClosed;
  send_queue_.Release(send_queue_.Clear());
  const auto handler = std::move(handler_);
  handler->OnClosed(*this, close_reason_, close_status_);
  context.reset();
}

}  // namespace fs3
