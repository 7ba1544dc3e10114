// Updates go to the head of the chain, and again under the same name until somebody answers.
#include <algorithm>
#include <utility>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/client/engine.h"

namespace fs3 {
namespace {

constexpr uint32_t kRemoveLimit = 256;

// Whether the same update may succeed later, as it is.
bool MayPass(Code code) {
  switch (code) {
    case Code::kBusy:
    case Code::kUnavailable:
    case Code::kTimedOut:
    case Code::kStaleRouting:
    case Code::kCorrupt:  // on its way there: it is sent again
      return true;
    default:
      return false;
  }
}

}  // namespace

// ---- Writes

void Engine::DispatchWrite(IoPiece* piece, const ChainRoute& route) {
  if (piece->sequence == 0 && !lanes_.Take(piece)) return;
  ShardLink* link = LinkTo(route.serving.front().endpoint);
  BeginAttempt(piece, link, piece->length);
  link->writes.push_back(piece);
  ScheduleSend();
}

void Engine::SendWrites(ShardLink* link, std::span<IoPiece* const> pieces) {
  Request request;
  std::vector<WriteOp> ops;
  ops.reserve(pieces.size());
  uint32_t crc = 0;
  for (const IoPiece* piece : pieces) {
    WriteOp& op = ops.emplace_back();
    op.chunk = piece->chunk.Encode();
    op.chain = piece->chain;
    const ChainRoute* route = RouteOf(piece->chain);
    op.chain_version = route != nullptr ? route->version : 0;
    op.truncate_version = piece->truncate_version;
    op.offset = piece->offset;
    op.length = piece->length;
    op.cut = piece->cut;
    op.crc32c = piece->crc;
    op.client = options_.self.incarnation;
    op.channel = piece->channel;
    op.sequence = piece->sequence;
    op.acknowledged_through = piece->sequence - 1;
    op.chunk_size = piece->chunk_size;
    request.bulk.push_back({piece->memory, piece->length});
    crc = Crc32cCombine(crc, piece->crc, piece->length);
    request.timeout = std::max(request.timeout, TimeoutOf(*piece));
  }
  const auto body = EncodeOps(std::span<const WriteOp>(ops));
  request.method = kMethodChunkWrite;
  request.body = body;
  request.bulk_crc32c = crc;
  request.on_reply = [this, link, sent = std::vector<IoPiece*>(pieces.begin(), pieces.end())](
                         Reply& reply) { OnWriteReply(link, sent, reply); };
  counters_.frames.Add();
  ChannelOf(link)->Call(std::move(request));
}

void Engine::OnWriteReply(ShardLink* link, const std::vector<IoPiece*>& pieces,
                          const Reply& reply) {
  OnTransportFailure(link, reply);
  Code code = reply.code;
  std::vector<UpdateReply> answers(pieces.size());
  if (code == Code::kOk) {
    auto decoded = DecodeOps<UpdateReply>(reply.body);
    const bool fits = decoded.ok() && decoded.value().size() == pieces.size();
    if (fits) answers = std::move(decoded.value());
    if (!fits) code = Code::kInternal;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    IoPiece* piece = pieces[i];
    Ticket& ticket = *piece->ticket;
    EndAttempt(piece, link, piece->length);
    const Code answer = code == Code::kOk ? static_cast<Code>(answers[i].code) : code;
    if (answer == Code::kOk) {
      counters_.writes.Add();
      counters_.written_bytes.Add(piece->length);
    }
    OnUpdateReply(piece, answer, piece->length);
    LeaveTicket(ticket);
  }
  Pump();
}

void Engine::OnUpdateReply(IoPiece* piece, Code code, uint64_t length) {
  if (code == Code::kOk) return Finish(piece, code, length);
  if (MayPass(code)) return Retry(piece, code);
  Finish(piece, code, 0);
}

// ---- Operations that are sent one by one

template <typename Op, typename ReplyType, typename Handle>
void Engine::CallOne(IoPiece* piece, const RouteMember& to, uint16_t method, const Op& op,
                     Handle handle) {
  ShardLink* link = LinkTo(to.endpoint);
  BeginAttempt(piece, link, 0);
  const auto body = EncodeOps(std::span<const Op>(&op, 1));
  Request request;
  request.method = method;
  request.body = body;
  request.timeout = TimeoutOf(*piece);
  request.on_reply = [this, piece, link, handle](Reply& reply) {
    OnTransportFailure(link, reply);
    Ticket& ticket = *piece->ticket;
    EndAttempt(piece, link, 0);
    ReplyType answer;
    Code code = reply.code;
    if (code == Code::kOk) {
      const auto decoded = DecodeOps<ReplyType>(reply.body);
      const bool fits = decoded.ok() && decoded.value().size() == 1;
      if (fits) answer = decoded.value().front();
      code = fits ? static_cast<Code>(answer.code) : Code::kInternal;
    }
    handle(code, answer);
    LeaveTicket(ticket);
    Pump();
  };
  counters_.frames.Add();
  ChannelOf(link)->Call(std::move(request));
}

void Engine::DispatchTruncate(IoPiece* piece, const ChainRoute& route) {
  TruncateOp op;
  op.chunk = piece->chunk.Encode();
  op.chain = piece->chain;
  op.chain_version = route.version;
  op.truncate_version = piece->truncate_version;
  op.length = piece->length;
  CallOne<TruncateOp, UpdateReply>(
      piece, route.serving.front(), kMethodChunkTruncate, op,
      [this, piece](Code code, const UpdateReply&) { OnUpdateReply(piece, code, 1); });
}

void Engine::DispatchRemove(IoPiece* piece, const ChainRoute& route) {
  RemoveOp op;
  op.inode = piece->chunk.inode;
  op.chain = piece->chain;
  op.chain_version = route.version;
  op.truncate_version = piece->truncate_version;
  op.first_index = piece->chunk.index;
  op.last_index = UINT32_MAX;
  op.limit = kRemoveLimit;
  CallOne<RemoveOp, RemoveReply>(piece, route.serving.front(), kMethodChunkRemove, op,
                                 [this, piece](Code code, const RemoveReply& reply) {
                                   piece->ticket->results_[piece->request].length += reply.removed;
                                   if (code != Code::kOk || reply.more == 0)
                                     return OnUpdateReply(piece, code, 0);
                                   piece->chunk.index = reply.next_index;
                                   queue_.push_back(piece);
                                 });
}

void Engine::DispatchQueryLast(IoPiece* piece, const ChainRoute& route) {
  const QueryLastOp op{piece->chunk.inode, piece->chain, 0, route.version};
  CallOne<QueryLastOp, QueryLastReply>(
      piece, route.serving.back(), kMethodChunkQueryLast, op,
      [this, piece](Code code, const QueryLastReply& reply) {
        const uint64_t end = uint64_t{reply.index} * piece->chunk_size + reply.length;
        OnUpdateReply(piece, code, reply.found != 0 ? end : 0);
      });
}

// On every serving replica; all of it again when one fails.
void Engine::DispatchFlush(IoPiece* piece, const ChainRoute& route) {
  const FlushOp op{piece->chain, 0, route.version};
  piece->flushes = static_cast<uint32_t>(route.serving.size());
  piece->flush_code = Code::kOk;
  const auto members = route.serving;
  for (const RouteMember& member : members) {
    CallOne<FlushOp, FlushReply>(piece, member, kMethodChunkFlush, op,
                                 [this, piece](Code code, const FlushReply&) {
                                   if (code != Code::kOk) piece->flush_code = code;
                                   if (--piece->flushes > 0) return;
                                   OnUpdateReply(piece, piece->flush_code, 0);
                                 });
  }
}

}  // namespace fs3
