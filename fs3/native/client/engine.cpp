// Queue, retries and completion; reads and updates are in files of their own.
#include "fs3/native/client/engine.h"

#include <algorithm>
#include <utility>

namespace fs3 {
namespace {

constexpr size_t kFrameBytesMax = 1U << 20;  // of data, unless one operation is larger
constexpr size_t kFrameOpsMax = 512;
constexpr auto kBackoffFirst = std::chrono::milliseconds(5);
constexpr auto kBackoffMax = std::chrono::milliseconds(100);
constexpr auto kOperationTimeout = std::chrono::seconds(5);
constexpr auto kSuspectFor = std::chrono::milliseconds(200);

Channel::Options ChannelOptions() {
  Channel::Options options;
  options.connect_timeout = std::chrono::seconds(1);
  options.backoff_max = std::chrono::milliseconds(100);
  return options;
}

IoPiece* PieceOf(IoPiece* piece) { return piece; }
IoPiece* PieceOf(const std::pair<IoPiece*, TargetId>& item) { return item.first; }

// Calls send(span) for runs of pieces that fit into one frame.
template <typename Item, typename Send>
void ForEachFrame(std::vector<Item> items, Send send) {
  size_t begin = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t length = PieceOf(items[i])->length;
    const bool fits = i == begin || (bytes + length <= kFrameBytesMax && i - begin < kFrameOpsMax);
    if (!fits) {
      send(std::span<const Item>(items).subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += length;
  }
  if (begin < items.size()) send(std::span<const Item>(items).subspan(begin));
}

}  // namespace

Engine::Engine(Loop& loop, const EngineOptions& options, ClientCounters& counters,
               CompletionQueue& completions)
    : loop_(loop), options_(options), counters_(counters), completions_(completions) {}

void Engine::SetRouting(std::vector<ChainRoute> chains) {
  for (ChainRoute& chain : chains) {
    ChainRoute& known = chains_[chain.chain];
    if (chain.version <= known.version) continue;
    known = std::move(chain);
    const auto waiting = parked_[known.chain];
    for (IoPiece* piece : waiting) {
      Unpark(piece);
      piece->backoff = {};
      queue_.push_back(piece);
    }
  }
  Pump();
}

void Engine::AddTicket(std::shared_ptr<Ticket> ticket) {
  Ticket& added = *ticket;
  added.self_ = std::move(ticket);
  ++tickets_;
  added.missing_ = added.pieces_.size();
  if (added.missing_ == 0) Complete(added);
}

void Engine::AddPieces(Ticket& ticket, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) queue_.push_back(&ticket.pieces_[i]);
  Pump();
}

void Engine::Close(Function<void()> closed) {
  closed_ = true;
  for (auto& [text, link] : links_) CloseLink(link.get());
  for (auto& [chain, pieces] : std::exchange(parked_, {})) {
    for (IoPiece* piece : pieces) {
      loop_.CancelTimer(piece->park_timer);
      piece->parked = false;
      queue_.push_back(piece);
    }
  }
  Pump();
  on_closed_ = std::move(closed);
  if (tickets_ == 0) on_closed_();
}

void Engine::Pump() {
  while (!queue_.empty() && (closed_ || inflight_bytes_ < options_.inflight_bytes_max)) {
    IoPiece* piece = queue_.front();
    queue_.pop_front();
    Dispatch(piece);
  }
}

void Engine::Dispatch(IoPiece* piece) {
  if (piece->done) return;
  if (closed_) return Finish(piece, Code::kUnavailable, 0);
  if (loop_.now() >= piece->ticket->deadline_) return Finish(piece, Code::kTimedOut, 0);
  const ChainRoute* route = RouteOf(piece->chain);
  if (route == nullptr) return Park(piece);
  switch (piece->kind) {
    case IoKind::kRead:
      return DispatchRead(piece, *route);
    case IoKind::kWrite:
      return DispatchWrite(piece, *route);
    case IoKind::kTruncate:
      return DispatchTruncate(piece, *route);
    case IoKind::kRemove:
      return DispatchRemove(piece, *route);
    case IoKind::kQueryLast:
      return DispatchQueryLast(piece, *route);
    case IoKind::kFlush:
      return DispatchFlush(piece, *route);
  }
}

void Engine::ScheduleSend() {
  if (std::exchange(send_scheduled_, true)) return;
  loop_.Defer([this] { SendQueued(); });
}

void Engine::SendQueued() {
  send_scheduled_ = false;
  for (auto& [text, link] : links_) {
    ShardLink* to = link.get();
    ForEachFrame(std::exchange(to->reads, {}), [&](auto pieces) { SendReads(to, pieces); });
    ForEachFrame(std::exchange(to->writes, {}), [&](auto pieces) { SendWrites(to, pieces); });
  }
}

// ---- Waiting and trying again

// Until the routing changes, or for a while.
void Engine::Park(IoPiece* piece) {
  piece->backoff =
      std::clamp<std::chrono::nanoseconds>(piece->backoff * 2, kBackoffFirst, kBackoffMax);
  const auto left = piece->ticket->deadline_ - loop_.now();
  piece->parked = true;
  parked_[piece->chain].insert(piece);
  piece->park_timer = loop_.StartTimer(std::min(piece->backoff, left), [this, piece] {
    Unpark(piece);
    queue_.push_back(piece);
    Pump();
  });
}

void Engine::Unpark(IoPiece* piece) {
  loop_.CancelTimer(piece->park_timer);
  piece->parked = false;
  const auto at = parked_.find(piece->chain);
  at->second.erase(piece);
  if (at->second.empty()) parked_.erase(at);
}

// An update that failed for a reason that may pass.
void Engine::Retry(IoPiece* piece, Code code) {
  if (closed_) return Finish(piece, Code::kUnavailable, 0);
  if (loop_.now() >= piece->ticket->deadline_) return Finish(piece, Code::kTimedOut, 0);
  if (!std::exchange(piece->retried, true)) counters_.retried_ops.Add();
  piece->failure = code;
  Park(piece);
}

// ---- Completion

void Engine::Finish(IoPiece* piece, Code code, uint64_t length) {
  piece->done = true;
  piece->fallback.reset();
  Ticket& ticket = *piece->ticket;
  IoResult& result = ticket.results_[piece->request];
  if (code != Code::kOk) {
    counters_.failed_ops.Add();
    if (result.code == 0) result.code = static_cast<uint32_t>(code);
  }
  result.length =
      piece->kind == IoKind::kQueryLast ? std::max(result.length, length) : result.length + length;
  if (piece->kind == IoKind::kWrite && piece->sequence != 0) {
    if (IoPiece* next = lanes_.Release(*piece)) queue_.push_front(next);
  }
  if (--ticket.missing_ == 0) Complete(ticket);
}

void Engine::Complete(Ticket& ticket) {
  for (size_t i = 0; i < ticket.results_.size(); ++i) {
    IoResult& result = ticket.results_[i];
    if (result.code != 0) {
      result.length = 0;
    } else if (i < ticket.ends_.size()) {
      ticket.files_[i]->OnWritten(ticket.ends_[i]);
    }
  }
  ticket.MarkDone();
  if (ticket.in_queue_) completions_.Push(ticket.self_);
  ReleaseIfUnused(ticket);
}

void Engine::BeginAttempt(IoPiece* piece, ShardLink* link, size_t bytes) {
  ++piece->attempts;
  ++piece->ticket->under_way_;
  inflight_bytes_ += bytes;
  link->outstanding_bytes += bytes;
}

// The ticket and its pieces may be used until LeaveTicket.
void Engine::EndAttempt(IoPiece* piece, ShardLink* link, size_t bytes) {
  --piece->attempts;
  inflight_bytes_ -= bytes;
  link->outstanding_bytes -= bytes;
}

// The last thing a reply does with the ticket of each of its pieces.
void Engine::LeaveTicket(Ticket& ticket) {
  --ticket.under_way_;
  ReleaseIfUnused(ticket);
}

void Engine::ReleaseIfUnused(Ticket& ticket) {
  if (ticket.missing_ > 0 || ticket.under_way_ > 0 || ticket.self_ == nullptr) return;
  const auto last = std::move(ticket.self_);  // may be the last to know it
  --tickets_;
  if (on_closed_ && tickets_ == 0) on_closed_();
}

// ---- Shards

const ChainRoute* Engine::RouteOf(ChainId chain) const {
  const auto found = chains_.find(chain);
  return found == chains_.end() || found->second.serving.empty() ? nullptr : &found->second;
}

ShardLink* Engine::LinkTo(const Endpoint& endpoint) {
  auto& link = links_[endpoint.Text()];
  if (link == nullptr) {
    link = std::make_unique<ShardLink>();
    link->endpoint = endpoint;
  }
  return link.get();
}

Channel* Engine::ChannelOf(ShardLink* link) {
  if (link->channel == nullptr) {
    link->channel =
        Channel::Create(loop_, TcpTransport(), link->endpoint, options_.self, ChannelOptions());
  }
  return link->channel.get();
}

// Ends a connection that hangs; the next use makes a new one.
void Engine::CloseLink(ShardLink* link) {
  if (link->channel != nullptr) std::exchange(link->channel, nullptr)->Close();
  link->suspect_until = loop_.now() + kSuspectFor;
}

void Engine::OnTransportFailure(ShardLink* link, const Reply& reply) {
  if (!reply.from_server && reply.code != Code::kOk) {
    link->suspect_until = loop_.now() + kSuspectFor;
  }
}

std::chrono::nanoseconds Engine::TimeoutOf(const IoPiece& piece) const {
  const std::chrono::nanoseconds left = piece.ticket->deadline_ - loop_.now();
  return std::clamp<std::chrono::nanoseconds>(left, std::chrono::milliseconds(1),
                                              kOperationTimeout);
}

}  // namespace fs3
