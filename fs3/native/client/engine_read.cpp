// Reads: any replica will do, so another one is asked when the first fails or is slow.
#include <algorithm>
#include <cstring>
#include <utility>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/client/engine.h"

namespace fs3 {
namespace {

constexpr auto kWatchPeriod = std::chrono::milliseconds(20);

// Whether another replica may do better, now or later.
bool MayPass(Code code) {
  switch (code) {
    case Code::kBusy:
    case Code::kUnavailable:
    case Code::kTimedOut:
    case Code::kStaleRouting:
      return true;
    default:
      return false;
  }
}

// Wrong everywhere, because the request is.
bool IsFinal(Code code) {
  switch (code) {
    case Code::kStaleHandle:
    case Code::kInvalidArgument:
    case Code::kPermissionDenied:
    case Code::kVersionMismatch:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Engine::DispatchRead(IoPiece* piece, const ChainRoute& route) {
  const RouteMember* member = PickReplica(*piece, route);
  if (member == nullptr) {  // each has failed once
    piece->tried.clear();
    if (!std::exchange(piece->may_pass, false)) return Finish(piece, piece->failure, 0);
    return Park(piece);
  }
  ShardLink* link = LinkTo(member->endpoint);
  BeginAttempt(piece, link, piece->length);
  link->reads.emplace_back(piece, member->target);
  ScheduleSend();
}

// The one with the fewest bytes on the way among those not tried, healthy ones first.
const RouteMember* Engine::PickReplica(const IoPiece& piece, const ChainRoute& route) {
  const RouteMember* best = nullptr;
  std::pair<bool, size_t> best_cost;
  const size_t count = route.serving.size();
  const size_t start = rotation_++;
  for (size_t i = 0; i < count; ++i) {
    const RouteMember& member = route.serving[(start + i) % count];
    const auto& tried = piece.tried;
    if (std::find(tried.begin(), tried.end(), member.target) != tried.end()) continue;
    const ShardLink* link = LinkTo(member.endpoint);
    const std::pair<bool, size_t> cost(link->suspect_until > loop_.now(), link->outstanding_bytes);
    if (best != nullptr && cost >= best_cost) continue;
    best = &member;
    best_cost = cost;
  }
  return best;
}

void Engine::SendReads(ShardLink* link, std::span<const std::pair<IoPiece*, TargetId>> pieces) {
  const auto attempt = std::make_shared<ReadAttempt>();
  attempt->link = link;
  attempt->sent = loop_.now();
  std::vector<ReadOp> ops;
  ops.reserve(pieces.size());
  std::chrono::nanoseconds timeout{};
  for (const auto& [piece, target] : pieces) {
    ReadOp& op = ops.emplace_back();
    op.chunk = piece->chunk.Encode();
    op.chain = piece->chain;
    const ChainRoute* route = RouteOf(piece->chain);
    op.chain_version = route != nullptr ? route->version : 0;
    op.truncate_version = piece->truncate_version;
    op.offset = piece->offset;
    op.length = piece->length;
    op.cut = piece->cut;
    attempt->bytes += piece->length;
    attempt->pieces.emplace_back(piece, target);
    timeout = std::max(timeout, TimeoutOf(*piece));
  }
  const auto body = EncodeOps(std::span<const ReadOp>(ops));
  Request request;
  request.method = kMethodChunkRead;
  request.body = body;
  request.timeout = timeout;
  request.place_bulk = [this, attempt](const FrameHeader& header, std::span<const uint8_t> reply) {
    return PlaceReads(*attempt, header, reply);
  };
  request.on_reply = [this, attempt](Reply& reply) { OnReadReply(attempt, reply); };
  counters_.frames.Add();
  read_attempts_.insert(attempt);
  ChannelOf(link)->Call(std::move(request));
  Watch();
}

bool Engine::DecodeReads(ReadAttempt& attempt, uint64_t bulk_length,
                         std::span<const uint8_t> body) {
  auto replies = DecodeOps<ReadReply>(body);
  if (!replies.ok() || replies.value().size() != attempt.pieces.size()) return false;
  uint64_t total = 0;
  for (size_t i = 0; i < attempt.pieces.size(); ++i) {
    const ReadReply& reply = replies.value()[i];
    const bool failed = reply.code != 0;
    if (reply.length > (failed ? 0 : attempt.pieces[i].first->length)) return false;
    total += reply.length;
  }
  attempt.replies = std::move(replies.value());
  return total == bulk_length;
}

// Straight into the caller's memory, unless the piece is decided or another reply is arriving
// there.
BulkTarget Engine::PlaceReads(ReadAttempt& attempt, const FrameHeader& header,
                              std::span<const uint8_t> body) {
  if (header.code() != Code::kOk || !DecodeReads(attempt, header.bulk_length, body)) {
    return BulkTarget::Discard();
  }
  attempt.is_valid = true;
  attempt.receiving_since = loop_.now();
  BulkTarget target;
  target.verify = false;  // each piece has a checksum of its own
  for (size_t i = 0; i < attempt.pieces.size(); ++i) {
    IoPiece* piece = attempt.pieces[i].first;
    const uint32_t length = attempt.replies[i].length;
    uint8_t* place = piece->memory;
    if (piece->done || piece->receiving != nullptr) {
      attempt.aside.push_back(Buffer::Allocate(length));
      place = attempt.aside.back().data();
    } else {
      piece->receiving = &attempt;
    }
    attempt.places.push_back(place);
    if (length > 0) target.pieces.push_back({place, length});
  }
  return target;
}

void Engine::OnReadReply(const std::shared_ptr<ReadAttempt>& attempt, const Reply& reply) {
  read_attempts_.erase(attempt);
  OnTransportFailure(attempt->link, reply);
  Code code = reply.code;
  if (code == Code::kOk && !attempt->is_valid) {
    attempt->is_valid = reply.header.bulk_length == 0 && DecodeReads(*attempt, 0, reply.body);
    if (!attempt->is_valid) code = Code::kInternal;
  }
  attempt->places.resize(attempt->pieces.size());
  for (size_t i = 0; i < attempt->pieces.size(); ++i) {
    const auto [piece, target] = attempt->pieces[i];
    Ticket& ticket = *piece->ticket;
    if (piece->receiving == attempt.get()) piece->receiving = nullptr;
    EndAttempt(piece, attempt->link, piece->length);
    if (!piece->done) {
      if (code == Code::kOk) {
        OnPieceRead(*attempt, i);
      } else {
        OnReadFailed(piece, target, code);
      }
    }
    LeaveTicket(ticket);
  }
  Pump();
}

void Engine::OnPieceRead(ReadAttempt& attempt, size_t index) {
  const auto [piece, target] = attempt.pieces[index];
  const ReadReply& reply = attempt.replies[index];
  if (reply.code != 0) return OnReadFailed(piece, target, static_cast<Code>(reply.code));
  const uint8_t* data = attempt.places[index];
  if (Crc32c(data, reply.length) != reply.crc32c) {
    counters_.corrupt_replies.Add();
    return OnReadFailed(piece, target, Code::kCorrupt);
  }
  if (piece->receiving == nullptr) return FinishRead(piece, data, reply.length);
  // Another reply is still arriving in the caller's memory: this one waits for its end.
  piece->fallback = std::make_unique<Buffer>(Buffer::Allocate(piece->length));
  std::memset(piece->fallback->data(), 0, piece->length);
  std::memcpy(piece->fallback->data(), data, reply.length);
}

// What lies behind the end of a chunk, but inside the file, is a hole.
void Engine::FinishRead(IoPiece* piece, const uint8_t* data, size_t size) {
  if (data != piece->memory && size > 0) std::memcpy(piece->memory, data, size);
  std::memset(piece->memory + size, 0, piece->length - size);
  counters_.reads.Add();
  counters_.read_bytes.Add(piece->length);
  Finish(piece, Code::kOk, piece->length);
}

void Engine::OnReadFailed(IoPiece* piece, TargetId target, Code code) {
  if (piece->fallback != nullptr && piece->receiving == nullptr) {
    const auto whole = std::move(piece->fallback);
    return FinishRead(piece, whole->data(), piece->length);
  }
  piece->failure = code;
  piece->may_pass |= MayPass(code);
  piece->tried.push_back(target);
  if (piece->attempts > 0) return;  // the other one may still succeed
  if (IsFinal(code)) return Finish(piece, code, 0);
  if (closed_) return Finish(piece, Code::kUnavailable, 0);
  if (!std::exchange(piece->retried, true)) counters_.retried_ops.Add();
  queue_.push_front(piece);
}

// ---- Slow replicas

void Engine::Watch() {
  if (read_attempts_.empty() || std::exchange(watching_, true)) return;
  loop_.StartTimer(kWatchPeriod, [this] {
    watching_ = false;
    const auto now = loop_.now();
    const auto attempts = read_attempts_;
    for (const auto& attempt : attempts) {
      if (now - attempt->sent >= options_.hedge_after) Hedge(*attempt);
    }
    Pump();
    Watch();
  });
}

void Engine::Hedge(ReadAttempt& attempt) {
  const auto now = loop_.now();
  const bool hangs = attempt.receiving_since != BootClock::time_point() &&
                     now - attempt.receiving_since >= options_.hedge_after;
  bool others_wait = false;
  for (const auto& [piece, target] : attempt.pieces) {
    if (piece->done) continue;
    const bool receiving_here = piece->receiving == &attempt;
    others_wait |= receiving_here && piece->fallback != nullptr;
    if (now >= piece->ticket->deadline_ && piece->receiving == nullptr) {
      Finish(piece, Code::kTimedOut, 0);
      continue;
    }
    const ChainRoute* route = RouteOf(piece->chain);
    if (piece->hedged || route == nullptr) continue;
    piece->tried.push_back(target);
    const RouteMember* other = PickReplica(*piece, *route);
    piece->tried.pop_back();
    if (other == nullptr) continue;
    piece->hedged = true;
    counters_.hedged_reads.Add();
    ShardLink* link = LinkTo(other->endpoint);
    BeginAttempt(piece, link, piece->length);
    link->reads.emplace_back(piece, other->target);
    ScheduleSend();
  }
  // The data is here, but a connection that hangs holds the caller's memory.
  if (hangs && others_wait) CloseLink(attempt.link);
}

}  // namespace fs3
