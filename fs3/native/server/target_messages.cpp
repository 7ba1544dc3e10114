// What a target says to the other members of its chain, and what they say to it.
#include <algorithm>
#include <utility>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/server/target.h"
#include "fs3/native/server/target_data.h"

namespace fs3 {
namespace {

constexpr size_t kForwardBytesMax = 1U << 20;  // of one frame, unless one op is larger
constexpr size_t kForwardOpsMax = 512;
constexpr auto kForwardTimeout = std::chrono::seconds(10);
constexpr auto kQueryTimeout = std::chrono::seconds(2);
constexpr auto kSyncDoneTimeout = std::chrono::seconds(60);
constexpr auto kStalledAfter = std::chrono::milliseconds(1500);
constexpr auto kProgressPeriod = std::chrono::milliseconds(250);

ForwardItem ToItem(const replica::Update& update, bool upstream_persisted) {
  ForwardItem item;
  ForwardOp& op = item.op;
  op.chunk = update.chunk.Encode();
  op.version = WireVersion::From(update.version);
  op.truncate_version = update.truncate_version;
  op.client = update.tag.client;
  op.sequence = update.tag.sequence;
  op.acknowledged_through = update.tag.acknowledged_through;
  op.channel = update.tag.channel;
  op.kind = static_cast<uint8_t>(update.kind);
  op.flags = upstream_persisted ? kForwardUpstreamPersisted : 0;
  op.offset = update.kind == replica::UpdateKind::kWrite ? update.offset : 0;
  op.length = update.length;
  op.chunk_size = update.chunk_size;
  item.expired_clients = update.expired_clients;
  return item;
}

WireRecord ToWire(const OnceRecord& record) {
  return {record.client, record.sequence, WireVersion::From(record.version), record.channel,
          record.length};
}

OnceRecord FromWire(const WireRecord& record) {
  return {record.client, record.channel, record.sequence, record.version.Get(), record.length};
}

}  // namespace

// ---- To the successor

void Target::Execute(const replica::Forward& effect) {
  OutgoingForward outgoing;
  outgoing.item = ToItem(*effect.update, effect.upstream_persisted);
  outgoing.chain_version = effect.chain_version;
  if (const auto* data = static_cast<const UpdateData*>(effect.update->payload.get())) {
    outgoing.data = data->bytes;
    outgoing.item.op.crc32c = data->crc;
    outgoing.item.op.data_length = static_cast<uint32_t>(data->bytes.size());
  }
  outgoing.keep = effect.update;
  QueueForward(std::move(outgoing));
}

void Target::Execute(const replica::ForwardChunk& effect) {
  store_->chunks().Stat(effect.chunk, [this, effect](Result<ChunkInfo> info) {
    if (!info.ok()) return RefuseForward(effect, info.status().code());
    SendChunk(effect, info.value());
  });
}

// As if the successor had refused it: the machine will try again.
void Target::RefuseForward(const replica::ForwardChunk& effect, Code code) {
  Tell([&](replica::Effects* effects) {
    machine_.OnAcknowledge(effect.chain_version, effect.chunk, effect.version, code, false,
                           effects);
  });
}

// `info` describes the newest version, which is the one asked for: it has the chunk's only slot.
void Target::SendChunk(const replica::ForwardChunk& effect, const ChunkInfo& info) {
  const VersionInfo* newest = !info.pending.empty() ? &info.pending.back()
                              : info.committed      ? &*info.committed
                                                    : nullptr;
  if (newest == nullptr || newest->version != effect.version) {
    return RefuseForward(effect, Code::kConflict);
  }
  OutgoingForward outgoing;
  outgoing.chain_version = effect.chain_version;
  ForwardOp& op = outgoing.item.op;
  op.chunk = effect.chunk.Encode();
  op.version = WireVersion::From(effect.version);
  op.truncate_version = newest->truncate_version;
  op.kind = static_cast<uint8_t>(replica::UpdateKind::kReplace);
  op.flags = kForwardUpstreamPersisted;
  op.chunk_size = info.chunk_size;
  for (const OnceRecord& record : info.once) outgoing.item.records.push_back(ToWire(record));
  if (newest->tombstone) {
    op.flags |= kForwardTombstone;
    return QueueForward(std::move(outgoing));
  }
  auto buffer = std::make_shared<Buffer>(Buffer::Allocate(newest->length));
  ReadRequest request{effect.chunk, 0, newest->length, effect.version, buffer->data()};
  store_->chunks().Read(request, [this, effect, buffer, outgoing = std::move(outgoing)](
                                     Result<ReadResult> result) mutable {
    if (!result.ok()) return RefuseForward(effect, result.status().code());
    const ReadResult& read = result.value();
    outgoing.item.op.length = outgoing.item.op.data_length = read.size;
    outgoing.item.op.crc32c = read.crc;
    outgoing.data = buffer->span().first(read.size);
    outgoing.keep = std::move(buffer);
    QueueForward(std::move(outgoing));
  });
}

void Target::Execute(const replica::SendPersisted& effect) {
  persisted_.push_back(
      {{effect.chunk.Encode(), WireVersion::From(effect.version)}, effect.chain_version});
  ScheduleSend();
}

void Target::QueueForward(OutgoingForward outgoing) {
  forwards_.push_back(std::move(outgoing));
  ScheduleSend();
}

void Target::ScheduleSend() {
  if (std::exchange(send_scheduled_, true)) return;
  shard_.loop.Defer([self = shared_from_this()] { self->SendQueued(); });
}

// Forwards before PERSISTED: a PERSISTED speaks of what was forwarded.
void Target::SendQueued() {
  send_scheduled_ = false;
  auto forwards = std::exchange(forwards_, {});
  std::vector<OutgoingForward> batch;
  size_t bytes = 0;
  for (OutgoingForward& forward : forwards) {
    if (forward.chain_version != machine_.chain_version()) continue;  // the machine sends it anew
    const bool fits = bytes + forward.data.size() <= kForwardBytesMax;
    if (!batch.empty() && (!fits || batch.size() >= kForwardOpsMax)) {
      SendForwards(std::exchange(batch, {}));
      bytes = 0;
    }
    bytes += forward.data.size();
    batch.push_back(std::move(forward));
  }
  if (!batch.empty()) SendForwards(std::move(batch));
  SendPersistedBatch(std::exchange(persisted_, {}));
}

void Target::SendForwards(std::vector<OutgoingForward> batch) {
  const auto successor = machine_.successor();
  const auto address = successor ? AddressOf(*successor) : std::nullopt;
  if (!address) return;
  Request request;
  request.method = kMethodForward;
  request.timeout = kForwardTimeout;
  std::vector<ForwardItem> items;
  uint32_t crc = 0;
  for (OutgoingForward& forward : batch) {
    const auto data = forward.data;
    if (!data.empty()) {
      request.bulk.push_back({const_cast<uint8_t*>(data.data()), data.size()});
      crc = Crc32cCombine(crc, forward.item.op.crc32c, data.size());
    }
    shard_.counters.forwards.Add();
    shard_.counters.forwarded_bytes.Add(data.size());
    items.push_back(std::move(forward.item));
    forward.item.op = items.back().op;
  }
  if (!request.bulk.empty()) request.bulk_crc32c = crc;
  const auto body = EncodeForward(HeaderFor(*successor, batch.front().chain_version), items);
  request.body = body;
  if (forwards_under_way_ == 0) last_progress_ = shard_.loop.now();
  forwards_under_way_ += batch.size();
  request.on_reply = [self = shared_from_this(), batch = std::move(batch)](Reply& reply) {
    self->OnForwardReply(batch, reply);
  };
  shard_.peers.Call(*address, std::move(request));
}

void Target::OnForwardReply(const std::vector<OutgoingForward>& batch, const Reply& reply) {
  forwards_under_way_ -= batch.size();
  std::vector<AcknowledgeReply> answers(batch.size());
  Code code = reply.code;
  if (code == Code::kOk) {
    const auto decoded = DecodeOps<AcknowledgeReply>(reply.body);
    if (decoded.ok() && decoded.value().size() == batch.size()) {
      answers = decoded.value();
    } else {
      code = Code::kInternal;
    }
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const Code answer = code == Code::kOk ? static_cast<Code>(answers[i].code) : code;
    const ForwardOp& op = batch[i].item.op;
    if (answer == Code::kOk) {
      last_progress_ = shard_.loop.now();
      retry_delay_ = {};
    }
    Tell([&](replica::Effects* effects) {
      machine_.OnAcknowledge(batch[i].chain_version, ChunkId::Decode(op.chunk.data()),
                             op.version.Get(), answer, answers[i].full != 0, effects);
    });
  }
  TellProgress();
}

void Target::SendPersistedBatch(std::vector<OutgoingPersisted> batch) {
  std::erase_if(batch, [&](const OutgoingPersisted& persisted) {
    return persisted.chain_version != machine_.chain_version();
  });
  const auto successor = machine_.successor();
  const auto address = successor ? AddressOf(*successor) : std::nullopt;
  if (batch.empty() || !address) return;
  for (size_t begin = 0; begin < batch.size(); begin += kForwardOpsMax) {
    std::vector<ChunkVersion> versions;
    const size_t end = std::min(batch.size(), begin + kForwardOpsMax);
    for (size_t i = begin; i < end; ++i) versions.push_back(batch[i].version);
    const auto body = EncodeChainOps(HeaderFor(*successor, machine_.chain_version()),
                                     std::span<const ChunkVersion>(versions));
    Request request;
    request.method = kMethodPersisted;
    request.body = body;
    request.timeout = kForwardTimeout;
    request.on_reply = [](Reply&) {};  // what is lost with the connection is forwarded again
    shard_.peers.Call(*address, std::move(request));
  }
}

void Target::Execute(const replica::SendSyncDone& effect) {
  const auto successor = machine_.successor();
  const auto address = successor ? AddressOf(*successor) : std::nullopt;
  if (!address) return;
  const auto body =
      EncodeChainOps(HeaderFor(*successor, effect.chain_version), std::span<const ChunkVersion>());
  Request request;
  request.method = kMethodSyncDone;
  request.body = body;
  request.timeout = kSyncDoneTimeout;
  request.on_reply = [self = shared_from_this(), effect](Reply& reply) {
    self->Tell([&](replica::Effects* effects) {
      self->machine_.OnSyncDoneAnswer(effect.chain_version, reply.code, effects);
    });
  };
  shard_.peers.Call(*address, std::move(request));
}

// ---- To the tail

void Target::Execute(const replica::AskTail& effect) {
  shard_.counters.tail_queries.Add();
  const auto address = AddressOf(machine_.tail());
  const auto answer = [self = shared_from_this(), token = effect.token](Code code,
                                                                        Version version) {
    self->Tell([&](replica::Effects* effects) {
      self->machine_.OnTailAnswer(token, code, version, effects);
    });
  };
  if (!address) return answer(Code::kUnavailable, {});
  const WireChunkId chunk = effect.chunk.Encode();
  const auto body = EncodeChainOps(HeaderFor(machine_.tail(), effect.chain_version),
                                   std::span<const WireChunkId>(&chunk, 1));
  Request request;
  request.method = kMethodCommitted;
  request.body = body;
  request.timeout = kQueryTimeout;
  request.on_reply = [answer](Reply& reply) {
    if (reply.code != Code::kOk) return answer(reply.code, {});
    const auto decoded = DecodeOps<CommittedReply>(reply.body);
    if (!decoded.ok() || decoded.value().size() != 1) return answer(Code::kInternal, {});
    const CommittedReply& committed = decoded.value().front();
    answer(static_cast<Code>(committed.code), committed.version.Get());
  };
  shard_.peers.Call(*address, std::move(request));
}

// ---- From peers

void Target::Forward(ChainVersion chain_version, const ForwardItem& item,
                     std::shared_ptr<FrameData> frame, std::span<const uint8_t> data,
                     Done<AcknowledgeReply> done) {
  const ForwardOp& op = item.op;
  auto payload = std::make_shared<UpdateData>();
  payload->keep = std::move(frame);
  payload->bytes = data;
  payload->crc = op.crc32c;
  payload->tombstone = (op.flags & kForwardTombstone) != 0;
  for (const WireRecord& record : item.records) payload->records.push_back(FromWire(record));
  replica::Update update;
  update.chunk = ChunkId::Decode(op.chunk.data());
  update.version = op.version.Get();
  update.kind = static_cast<replica::UpdateKind>(op.kind);
  update.tag = {op.client, op.channel, op.sequence, op.acknowledged_through};
  update.offset = op.offset;
  update.length = op.length;
  update.chunk_size = op.chunk_size;
  update.truncate_version = op.truncate_version;
  update.expired_clients = item.expired_clients;
  update.payload = std::move(payload);
  const replica::Token token = NewToken();
  predecessors_.emplace(token, std::move(done));
  CheckSpace(/*forget_downstream=*/false);
  Tell([&](replica::Effects* effects) {
    machine_.OnForward(token, chain_version, std::move(update),
                       (op.flags & kForwardUpstreamPersisted) != 0, effects);
  });
}

void Target::Persisted(ChainVersion chain_version, std::span<const ChunkVersion> versions) {
  for (const ChunkVersion& persisted : versions) {
    Tell([&](replica::Effects* effects) {
      machine_.OnUpstreamPersisted(chain_version, ChunkId::Decode(persisted.chunk.data()),
                                   persisted.version.Get(), effects);
    });
  }
}

void Target::Committed(ChainVersion chain_version, const ChunkId& chunk,
                       Done<CommittedReply> done) {
  store_->chunks().Stat(
      chunk, [this, chain_version, done = std::move(done)](Result<ChunkInfo> info) mutable {
        CommittedReply reply;
        // Asked after the look-up, so that the answer was true while this was the tail.
        if (!machine_.IsTail(chain_version)) {
          reply.code = static_cast<uint32_t>(Code::kStaleRouting);
        } else if (info.ok()) {
          const auto& committed = info.value().committed;
          reply.version = WireVersion::From(committed ? committed->version : Version());
        } else if (info.status().code() != Code::kNotFound) {
          reply.code = static_cast<uint32_t>(info.status().code());
        }
        done(reply);
      });
}

void Target::SyncDone(ChainVersion chain_version, Function<void(Code)> done) {
  const replica::Token token = NewToken();
  predecessors_.emplace(token, [done = std::move(done)](const AcknowledgeReply& reply) mutable {
    done(static_cast<Code>(reply.code));
  });
  Tell([&](replica::Effects* effects) { machine_.OnSyncDone(token, chain_version, effects); });
}

// ---- Watching

void Target::CheckProgress() {
  const auto now = shard_.loop.now();
  const auto successor = machine_.successor();
  if (forwards_under_way_ == 0 || !successor) return;
  if (now - last_progress_ < kStalledAfter || now - last_stall_told_ < kStalledAfter) return;
  last_stall_told_ = now;
  ServerEvent event = NewEvent(ServerEvent::Kind::kForwardStalled);
  event.target = *successor;
  event.node = static_cast<NodeId>(*successor >> 32);
  event.stalled_s = std::chrono::duration<double>(now - last_progress_).count();
  shard_.events.Push(std::move(event));
}

void Target::TellProgress() {
  const auto now = shard_.loop.now();
  if (!machine_.is_copying() || now - last_sync_told_ < kProgressPeriod) return;
  last_sync_told_ = now;
  ServerEvent event = NewEvent(ServerEvent::Kind::kSyncProgress);
  event.target = machine_.successor().value_or(0);
  event.done = machine_.copied();
  event.total = store_counters().chunks;
  shard_.events.Push(std::move(event));
}

const ChainMember* Target::FindMember(TargetId target) const {
  const auto found = std::find_if(config_.members.begin(), config_.members.end(),
                                  [&](const ChainMember& m) { return m.target == target; });
  return found == config_.members.end() ? nullptr : &*found;
}

std::optional<PeerAddress> Target::AddressOf(TargetId target) const {
  const ChainMember* member = FindMember(target);
  if (closing_ || member == nullptr) return std::nullopt;
  return PeerAddress{static_cast<NodeId>(target >> 32), member->endpoint};
}

ChainHeader Target::HeaderFor(TargetId target, ChainVersion chain_version) const {
  ChainHeader header;
  header.target = target;
  const ChainMember* member = FindMember(target);
  header.generation = member != nullptr ? member->generation : 0;
  header.chain_version = chain_version;
  header.chain = config_.chain;
  return header;
}

}  // namespace fs3
