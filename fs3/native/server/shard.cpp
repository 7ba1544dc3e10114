#include "fs3/native/server/shard.h"

#include <utility>

#include "fs3/native/frame/chunk_ops.h"
#include "fs3/native/frame/replication.h"
#include "fs3/native/server/read_frame.h"

namespace fs3 {
namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr uint64_t kSpaceTicks = 4;
constexpr uint64_t kFlushTicks = 20;  // every 5 s

bool IsChainMethod(uint16_t method) {
  return method >= kMethodReplicaFirst && method <= kMethodReplicaLast;
}

Status NotHere() { return {Code::kStaleRouting, "that target does not serve here"}; }

}  // namespace

Result<std::shared_ptr<Shard>> Shard::Start(Loop& loop, const ShardOptions& options,
                                            ServerEventQueue& events,
                                            std::shared_ptr<ServerCounters> counters) {
  std::shared_ptr<Shard> shard(new Shard(loop, options, events, std::move(counters)));
  auto listener =
      Listener::Open(loop, TcpTransport(), options.at, options.self, Listener::Options(), shard);
  if (!listener.ok()) return listener.status();
  shard->listener_ = std::move(listener.value());
  shard->Tick();
  return shard;
}

Shard::Shard(Loop& loop, const ShardOptions& options, ServerEventQueue& events,
             std::shared_ptr<ServerCounters> counters)
    : loop_(loop),
      options_(options),
      events_(events),
      counters_(std::move(counters)),
      peers_(loop, options.self, events),
      client_budget_(std::make_shared<ByteBudget>(options.inflight_bytes_max)),
      chain_budget_(std::make_shared<ByteBudget>(options.inflight_bytes_max)) {}

void Shard::Add(std::shared_ptr<Target> target) {
  targets_[target->identity().id] = std::move(target);
}

std::shared_ptr<Target> Shard::Find(TargetId target) const {
  const auto found = targets_.find(target);
  return found == targets_.end() ? nullptr : found->second;
}

std::shared_ptr<Target> Shard::Take(TargetId target) {
  auto found = targets_.extract(target);
  if (found.empty()) return nullptr;
  std::erase_if(chains_, [&](const auto& item) { return item.second == found.mapped(); });
  return std::move(found.mapped());
}

void Shard::SetChain(TargetId id, const ChainConfig& config) {
  const auto target = Find(id);
  if (target == nullptr) return;
  target->SetChain(config);
  chains_[config.chain] = target;
}

std::vector<std::shared_ptr<Target>> Shard::targets() const {
  std::vector<std::shared_ptr<Target>> all;
  for (const auto& [id, target] : targets_) all.push_back(target);
  return all;
}

void Shard::Close() {
  closed_ = true;
  listener_.reset();  // it keeps its handler, which is this
  peers_.Close();
}

void Shard::Tick() {
  if (closed_) return;
  ++ticks_;
  for (const auto& [id, target] : targets_) {
    target->CheckProgress();
    if (ticks_ % kSpaceTicks == 0) target->CheckSpace(/*forget_downstream=*/true);
    if ((ticks_ + id) % kFlushTicks == 0) target->FlushToMedia();
  }
  loop_.StartTimer(kTick, [self = shared_from_this()] { self->Tick(); });
}

// ---- Frames

// Data is checked by the store, by granules: the frame's own CRC would be a second pass over it.
BulkTarget Shard::OnBulk(Connection& connection, const FrameHeader& header,
                         std::span<const uint8_t>) {
  const bool is_forward = header.method == kMethodForward;
  if (!is_forward && header.method != kMethodChunkWrite) return BulkTarget::Discard();
  const auto& budget = is_forward ? chain_budget_ : client_budget_;
  const bool has_room = budget->HasRoom(header.bulk_length) &&
                        (is_forward || BudgetOf(connection)->HasRoom(header.bulk_length));
  if (!has_room) return BulkTarget::Discard();
  BulkTarget target = BulkTarget::Into(Buffer::Allocate(header.bulk_length));
  target.verify = false;
  return target;
}

void Shard::OnFrame(Connection& connection, Frame& frame) {
  if (frame.header.is_response()) return;
  const Status status = Dispatch(connection, frame);
  if (status.ok()) return;
  if (status.code() == Code::kInvalidArgument) counters_->malformed_requests.Add();
  if (status.code() == Code::kBusy) counters_->refused_busy.Add();
  (void)connection.SendError(frame.header, status);
}

Status Shard::Dispatch(Connection& connection, Frame& frame) {
  const uint16_t method = frame.header.method;
  if (IsChainMethod(method) && connection.peer().kind != PeerKind::kStorage) {
    return {Code::kPermissionDenied, "chain messages come from storage nodes only"};
  }
  switch (method) {
    case kMethodChunkRead:
      return OnRead(connection, frame);
    case kMethodChunkWrite:
      return OnWrite(connection, frame);
    case kMethodChunkTruncate:
      return OnTruncate(connection, frame);
    case kMethodChunkRemove:
      return OnRemove(connection, frame);
    case kMethodChunkQueryLast:
      return OnQueryLast(connection, frame);
    case kMethodChunkFlush:
      return OnFlush(connection, frame);
    case kMethodChunkStat:
      return OnStat(connection, frame);
    case kMethodSpace:
      return OnSpace(connection, frame);
    case kMethodForward:
      return OnForward(connection, frame);
    case kMethodPersisted:
      return OnPersisted(connection, frame);
    case kMethodCommitted:
      return OnCommitted(connection, frame);
    case kMethodSyncDone:
      return OnSyncDone(connection, frame);
    default:
      return {Code::kInvalidArgument, "unknown method"};
  }
}

std::shared_ptr<Target> Shard::FindChain(ChainId chain) const {
  const auto found = chains_.find(chain);
  return found == chains_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<Target>> Shard::FindReceiver(const ChainHeader& header) const {
  auto target = Find(header.target);
  const bool is_it = target != nullptr && target->identity().generation == header.generation &&
                     target->chain() == header.chain;
  if (!is_it) return NotHere();
  return target;
}

std::shared_ptr<ByteBudget> Shard::BudgetOf(Connection& connection) const {
  if (connection.context == nullptr) {
    connection.context = std::make_shared<ByteBudget>(options_.connection_inflight_bytes_max);
  }
  return std::static_pointer_cast<ByteBudget>(connection.context);
}

// Null when the data was thrown away for want of room.
std::shared_ptr<FrameData> Shard::Hold(Connection& connection, Frame& frame,
                                       const std::shared_ptr<ByteBudget>& budget) {
  auto data = std::make_shared<FrameData>();
  const size_t bytes = frame.header.bulk_length;
  if (bytes > 0 && !frame.bulk) return nullptr;
  data->buffer = std::move(frame.bulk);
  data->of_shard = BudgetHold(budget, bytes);
  data->of_connection = BudgetHold(BudgetOf(connection), bytes);
  return data;
}

template <typename Op, typename ReplyType, typename Handle>
Status Shard::ForEachOp(Connection& connection, Frame& frame, const std::vector<Op>& ops,
                        Handle handle) {
  if (ops.empty()) return {Code::kInvalidArgument, "no operations"};
  const auto replies = std::make_shared<OpReplies<ReplyType>>(connection, frame.header, ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto target = FindChain(ops[i].chain);
    if (target == nullptr) {
      replies->SetCode(i, Code::kStaleRouting);
      continue;
    }
    handle(*target, i, [replies, i](const ReplyType& reply) { replies->Set(i, reply); });
  }
  return Status::Ok();
}

// ---- From clients

Status Shard::OnRead(Connection& connection, Frame& frame) {
  auto ops = DecodeOps<ReadOp>(frame.body);
  if (!ops.ok()) return ops.status();
  if (ops.value().empty()) return {Code::kInvalidArgument, "no operations"};
  if (Status status = CheckReads(ops.value()); !status.ok()) return status;
  size_t bytes = 0;
  for (const ReadOp& op : ops.value()) bytes += op.length;
  const auto connection_budget = BudgetOf(connection);
  if (!client_budget_->HasRoom(bytes) || !connection_budget->HasRoom(bytes)) {
    return {Code::kBusy, "too many bytes in flight"};
  }
  const auto read = std::make_shared<ReadFrame>(connection, frame.header, std::move(ops.value()),
                                                BudgetHold(client_budget_, bytes),
                                                BudgetHold(connection_budget, bytes));
  for (size_t i = 0; i < read->ops().size(); ++i) {
    const ReadOp& op = read->ops()[i];
    const auto target = FindChain(op.chain);
    if (target == nullptr) {
      ReadReply reply;
      reply.code = static_cast<uint32_t>(Code::kStaleRouting);
      read->Set(i, reply);
      continue;
    }
    target->Read(op, read->Place(i), [read, i](const ReadReply& reply) { read->Set(i, reply); });
  }
  return Status::Ok();
}

Status Shard::OnWrite(Connection& connection, Frame& frame) {
  const auto ops = DecodeOps<WriteOp>(frame.body);
  if (!ops.ok()) return ops.status();
  Status status = CheckWrites(ops.value(), frame.header.bulk_length);
  if (!status.ok()) return status;
  const auto data = Hold(connection, frame, client_budget_);
  if (data == nullptr) return {Code::kBusy, "too many bytes in flight"};
  // The place of an op follows from those before it, also of those for no target here.
  std::vector<std::span<const uint8_t>> places;
  std::span<const uint8_t> rest = data->buffer.span();
  for (const WriteOp& op : ops.value()) {
    places.push_back(rest.first(op.length));
    rest = rest.subspan(op.length);
  }
  return ForEachOp<WriteOp, UpdateReply>(
      connection, frame, ops.value(), [&](Target& target, size_t i, auto done) {
        target.Write(ops.value()[i], data, places[i], std::move(done));
      });
}

Status Shard::OnTruncate(Connection& connection, Frame& frame) {
  const auto ops = DecodeOps<TruncateOp>(frame.body);
  if (!ops.ok()) return ops.status();
  if (Status status = CheckTruncates(ops.value()); !status.ok()) return status;
  return ForEachOp<TruncateOp, UpdateReply>(connection, frame, ops.value(),
                                            [&](Target& target, size_t i, auto done) {
                                              target.Truncate(ops.value()[i], std::move(done));
                                            });
}

Status Shard::OnRemove(Connection& connection, Frame& frame) {
  const auto ops = DecodeOps<RemoveOp>(frame.body);
  if (!ops.ok()) return ops.status();
  if (Status status = CheckRemoves(ops.value()); !status.ok()) return status;
  return ForEachOp<RemoveOp, RemoveReply>(
      connection, frame, ops.value(),
      [&](Target& target, size_t i, auto done) { target.Remove(ops.value()[i], std::move(done)); });
}

Status Shard::OnQueryLast(Connection& connection, Frame& frame) {
  const auto ops = DecodeOps<QueryLastOp>(frame.body);
  if (!ops.ok()) return ops.status();
  return ForEachOp<QueryLastOp, QueryLastReply>(connection, frame, ops.value(),
                                                [&](Target& target, size_t i, auto done) {
                                                  target.QueryLast(ops.value()[i], std::move(done));
                                                });
}

Status Shard::OnFlush(Connection& connection, Frame& frame) {
  const auto ops = DecodeOps<FlushOp>(frame.body);
  if (!ops.ok()) return ops.status();
  return ForEachOp<FlushOp, FlushReply>(
      connection, frame, ops.value(), [&](Target& target, size_t i, auto done) {
        target.Flush(ops.value()[i].chain_version, std::move(done));
      });
}

Status Shard::OnStat(Connection& connection, Frame& frame) {
  const auto ops = DecodeOps<StatOp>(frame.body);
  if (!ops.ok()) return ops.status();
  return ForEachOp<StatOp, StatReply>(
      connection, frame, ops.value(), [&](Target& target, size_t i, auto done) {
        target.Stat(ChunkId::Decode(ops.value()[i].chunk.data()), std::move(done));
      });
}

Status Shard::OnSpace(Connection& connection, Frame& frame) {
  std::vector<SpaceReply> replies;
  for (const auto& [id, target] : targets_) {
    const Space space = target->space();
    replies.push_back(
        {id, space.capacity, space.used, space.free, target->store_counters().chunks});
  }
  (void)connection.SendReply(frame.header, Code::kOk,
                             EncodeOps(std::span<const SpaceReply>(replies)));
  return Status::Ok();
}

// ---- From other storage nodes

Status Shard::OnForward(Connection& connection, Frame& frame) {
  const auto message = DecodeForward(frame.body, frame.header.bulk_length);
  if (!message.ok()) return message.status();
  const ChainHeader& header = message.value().header;
  const auto target = FindReceiver(header);
  if (!target.ok()) return target.status();
  const auto& items = message.value().items;
  if (items.empty()) return {Code::kInvalidArgument, "no operations"};
  const auto data = Hold(connection, frame, chain_budget_);
  if (data == nullptr) return {Code::kBusy, "too many bytes in flight"};
  const auto replies =
      std::make_shared<OpReplies<AcknowledgeReply>>(connection, frame.header, items.size());
  std::span<const uint8_t> rest = data->buffer.span();
  for (size_t i = 0; i < items.size(); ++i) {
    const uint32_t length = items[i].op.data_length;
    target.value()->Forward(
        header.chain_version, items[i], data, rest.first(length),
        [replies, i](const AcknowledgeReply& reply) { replies->Set(i, reply); });
    rest = rest.subspan(length);
  }
  return Status::Ok();
}

Status Shard::OnPersisted(Connection& connection, Frame& frame) {
  const auto versions = DecodeChainOps<ChunkVersion>(frame.body);
  if (!versions.ok()) return versions.status();
  const ChainHeader header = DecodeChainHeader(frame.body).value();
  const auto target = FindReceiver(header);
  if (!target.ok()) return target.status();
  target.value()->Persisted(header.chain_version, versions.value());
  (void)connection.SendReply(frame.header, Code::kOk, {});
  return Status::Ok();
}

Status Shard::OnCommitted(Connection& connection, Frame& frame) {
  const auto chunks = DecodeChainOps<WireChunkId>(frame.body);
  if (!chunks.ok()) return chunks.status();
  const ChainHeader header = DecodeChainHeader(frame.body).value();
  const auto target = FindReceiver(header);
  if (!target.ok()) return target.status();
  if (chunks.value().empty()) return {Code::kInvalidArgument, "no operations"};
  const auto replies =
      std::make_shared<OpReplies<CommittedReply>>(connection, frame.header, chunks.value().size());
  for (size_t i = 0; i < chunks.value().size(); ++i) {
    target.value()->Committed(
        header.chain_version, ChunkId::Decode(chunks.value()[i].data()),
        [replies, i](const CommittedReply& reply) { replies->Set(i, reply); });
  }
  return Status::Ok();
}

Status Shard::OnSyncDone(Connection& connection, Frame& frame) {
  const auto header = DecodeChainHeader(frame.body);
  if (!header.ok()) return header.status();
  const auto target = FindReceiver(header.value());
  if (!target.ok()) return target.status();
  target.value()->SyncDone(header.value().chain_version, [peer = connection.shared_from_this(),
                                                          request = frame.header](Code code) {
    if (code == Code::kOk) return (void)peer->SendReply(request, code, {});
    (void)peer->SendError(request, {code, "the copy could not be completed"});
  });
  return Status::Ok();
}

}  // namespace fs3
