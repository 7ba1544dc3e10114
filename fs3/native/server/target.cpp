// The machine's orders, carried out: store and tokens. Messages to peers are in
// target_messages.cpp, what clients ask for in target_client.cpp.
#include "fs3/native/server/target.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/server/target_data.h"

namespace fs3 {
namespace {

constexpr auto kRetryFirst = std::chrono::milliseconds(5);
constexpr auto kRetryMax = std::chrono::milliseconds(160);
constexpr size_t kListPage = 256;

UpdateKind StoreKind(replica::UpdateKind kind) {
  switch (kind) {
    case replica::UpdateKind::kWrite:
      return UpdateKind::kWrite;
    case replica::UpdateKind::kTruncate:
      return UpdateKind::kTruncate;
    case replica::UpdateKind::kRemove:
      return UpdateKind::kRemove;
    case replica::UpdateKind::kReplace:
      break;
  }
  return UpdateKind::kReplace;
}

// The id that sorts right behind `id`.
ChunkId Next(ChunkId id) {
  if (++id.shard == 0 && ++id.generation == 0 && ++id.index == 0) ++id.inode;
  return id;
}

std::optional<replica::ChunkState> ToState(const ChunkInfo& info) {
  if (!info.committed) return std::nullopt;
  replica::ChunkState state;
  state.version = info.committed->version;
  state.length = info.committed->length;
  state.live = !info.committed->tombstone;
  state.chunk_size = info.chunk_size;
  state.truncate_version = info.committed->truncate_version;
  for (const OnceRecord& record : info.once) {
    state.records.push_back(
        {record.client, record.channel, record.sequence, record.version, record.length});
  }
  return state;
}

Update ToStoreUpdate(const replica::Update& update, bool is_head) {
  Update out;
  out.chunk = update.chunk;
  out.kind = StoreKind(update.kind);
  out.version = update.version;
  out.chunk_size = update.chunk_size;
  out.truncate_version = update.truncate_version;
  out.offset = update.kind == replica::UpdateKind::kWrite ? update.offset : 0;
  out.length = update.kind == replica::UpdateKind::kTruncate ? update.length : 0;
  if (update.tag.client != 0) {
    out.once = OnceRecord{update.tag.client, update.tag.channel, update.tag.sequence, {}, 0};
    out.acknowledged_through = update.tag.acknowledged_through;
  }
  out.expired_clients = update.expired_clients;
  out.use_reserve = !is_head || update.kind != replica::UpdateKind::kWrite;
  if (const auto* data = static_cast<const UpdateData*>(update.payload.get())) {
    out.data = data->bytes;
    out.data_crc = data->crc;
    out.tombstone = data->tombstone;
    out.replace_once = data->records;
  }
  return out;
}

}  // namespace

std::shared_ptr<Target> Target::Create(const ShardContext& shard, const TargetIdentity& identity,
                                       std::unique_ptr<TargetStore> store,
                                       std::vector<replica::Uncommitted> recovered) {
  return std::shared_ptr<Target>(
      new Target(shard, identity, std::move(store), std::move(recovered)));
}

Target::Target(const ShardContext& shard, const TargetIdentity& identity,
               std::unique_ptr<TargetStore> store, std::vector<replica::Uncommitted> recovered)
    : shard_(shard),
      identity_(identity),
      store_(std::move(store)),
      machine_(identity.id, replica::Limits(), std::move(recovered)) {}

void Target::SetChain(const ChainConfig& config) {
  if (closing_ || config.version <= machine_.chain_version()) return;
  config_ = config;
  replica::Chain chain{config.version, {}};
  for (const ChainMember& member : config.members) {
    chain.members.push_back({member.target, member.syncing});
  }
  Tell([&](replica::Effects* effects) { machine_.OnChain(chain, effects); });
}

void Target::Close(Function<void(std::unique_ptr<TargetStore>)> closed) {
  closing_ = true;
  const replica::Chain none{std::numeric_limits<ChainVersion>::max(), {}};
  Tell([&](replica::Effects* effects) { machine_.OnChain(none, effects); });
  store_->chunks().Close(
      [self = shared_from_this(), closed = std::move(closed)](const Status&) mutable {
        // Not inside the store's own call.
        (void)self->shard_.loop.Post(
            [self, closed = std::move(closed)]() mutable { closed(std::move(self->store_)); });
      });
}

// ---- The machine

void Target::Drain() {
  if (executing_) return;
  executing_ = true;
  while (!to_execute_.empty()) {
    const replica::Effect effect = std::move(to_execute_.front());
    to_execute_.pop_front();
    std::visit([this](const auto& order) { Execute(order); }, effect);
  }
  executing_ = false;
}

void Target::Execute(const replica::LoadChunk& effect) {
  store_->chunks().Stat(effect.chunk, [this, chunk = effect.chunk](Result<ChunkInfo> info) {
    const Code code = info.status().code();
    std::optional<replica::ChunkState> state;
    if (info.ok()) state = ToState(info.value());
    Tell([&](replica::Effects* effects) {
      machine_.OnLoaded(chunk, code == Code::kNotFound ? Code::kOk : code, state, effects);
    });
  });
}

void Target::Execute(const replica::ListChunks& effect) {
  const ChunkId from = effect.after ? Next(*effect.after) : ChunkId();
  store_->chunks().List(from, kListPage,
                        [this, version = effect.chain_version](Result<ChunkList> list) {
                          std::vector<ChunkId> chunks;
                          bool more = false;
                          if (list.ok()) {
                            for (const ChunkInfo& info : list.value().chunks)
                              chunks.push_back(info.chunk);
                            more = list.value().next.has_value();
                          }
                          Tell([&](replica::Effects* effects) {
                            machine_.OnListed(version, list.status().code(), chunks, more, effects);
                          });
                        });
}

void Target::Execute(const replica::Persist& effect) {
  const Update update = ToStoreUpdate(*effect.update, machine_.is_head());
  store_->chunks().Prepare(update, [this, kept = effect.update](Result<Prepared> result) {
    Code code = result.status().code();
    const auto* data = static_cast<const UpdateData*>(kept->payload.get());
    if (code == Code::kCorrupt) {
      // Either what came is not what was sent, or what had to be read here is damaged.
      const bool came_damaged = data != nullptr && Crc32c(data->bytes) != data->crc;
      if (came_damaged) shard_.counters.corrupt_data.Add();
      if (!came_damaged) code = Code::kInternal;
    }
    const uint32_t length = result.ok() ? result.value().length : 0;
    Tell([&](replica::Effects* effects) {
      machine_.OnPersisted(kept->chunk, kept->version, code, length, effects);
    });
  });
}

void Target::Execute(const replica::Commit& effect) {
  const Status status = store_->chunks().Commit(effect.chunk, effect.version);
  if (status.ok()) return;
  ServerEvent event = NewEvent(ServerEvent::Kind::kTargetError);
  event.code = Code::kInternal;
  event.message = "a version to commit is not in the store: " + status.message();
  shard_.events.Push(std::move(event));
}

void Target::Execute(const replica::Discard& effect) {
  (void)store_->chunks().Abandon(effect.chunk, effect.version);  // gone is what it should be
}

void Target::Execute(const replica::Acknowledge& effect) {
  auto found = predecessors_.extract(effect.token);
  if (found.empty()) return;
  AcknowledgeReply reply;
  reply.code = static_cast<uint32_t>(effect.code);
  reply.full = effect.full ? 1 : 0;
  found.mapped()(reply);
}

void Target::Execute(const replica::Reply& effect) {
  auto found = clients_.extract(effect.token);
  if (found.empty()) return;
  UpdateReply reply;
  reply.code = static_cast<uint32_t>(effect.code);
  reply.length = effect.length;
  reply.version = WireVersion::From(effect.version);
  if (effect.code == Code::kBusy) shard_.counters.refused_busy.Add();
  found.mapped()(reply);
}

void Target::Execute(const replica::ServeRead& effect) {
  auto found = reads_.extract(effect.token);
  if (found.empty()) return;
  WaitingRead& read = found.mapped();
  ReadStore(read.op, effect.version, read.into, std::move(read.done));
}

void Target::Execute(const replica::RefuseRead& effect) {
  auto found = reads_.extract(effect.token);
  if (found.empty()) return;
  ReadReply reply;
  reply.code = static_cast<uint32_t>(effect.code);
  found.mapped().done(reply);
}

void Target::Execute(const replica::RetryLater&) {
  if (std::exchange(retry_armed_, true)) return;
  retry_delay_ = std::clamp<std::chrono::nanoseconds>(retry_delay_ * 2, kRetryFirst, kRetryMax);
  shard_.loop.StartTimer(retry_delay_, [self = shared_from_this()] {
    self->retry_armed_ = false;
    if (self->closing_) return;
    self->Tell([&](replica::Effects* effects) { self->machine_.OnRetry(effects); });
  });
}

// A replacement by nothing, whatever the chunk holds; then the tombstone goes too.
void Target::Execute(const replica::DropChunk& effect) {
  const auto dropped = [this, version = effect.chain_version](Code code) {
    if (code == Code::kNotFound) code = Code::kOk;
    Tell([&](replica::Effects* effects) { machine_.OnDropped(version, code, effects); });
  };
  Update update;
  update.chunk = effect.chunk;
  update.kind = UpdateKind::kReplace;
  update.version = {effect.chain_version, 0};
  update.chunk_size = kChunkSizeMin;
  update.tombstone = true;
  update.use_reserve = true;
  store_->chunks().Prepare(update, [this, dropped, update](const Result<Prepared>& result) {
    Status status = result.status();
    if (status.ok()) status = store_->chunks().Commit(update.chunk, update.version);
    if (!status.ok()) return dropped(status.code());
    store_->chunks().Forget(update.chunk, update.version,
                            [dropped](const Status& forgotten) { dropped(forgotten.code()); });
  });
}

void Target::Execute(const replica::SyncFinished& effect) {
  store_->chunks().Flush([this, effect](const Status& status) {
    auto found = predecessors_.extract(effect.token);
    if (found.empty()) return;
    AcknowledgeReply reply;
    reply.code = static_cast<uint32_t>(status.code());
    found.mapped()(reply);
    if (!status.ok()) return;
    ServerEvent event = NewEvent(ServerEvent::Kind::kSyncFinished);
    event.chain_version = effect.chain_version;
    shard_.events.Push(std::move(event));
  });
}

void Target::Execute(const replica::TargetFailed& effect) {
  ServerEvent event = NewEvent(ServerEvent::Kind::kTargetError);
  event.code = effect.code;
  event.message = "the store of the target failed";
  shard_.events.Push(std::move(event));
}

// ---- Regular work

void Target::FlushToMedia() {
  if (closing_ || std::exchange(flushing_, true)) return;
  store_->chunks().Flush([this](const Status&) { flushing_ = false; });
}

// Growth ends a little before the reserve, so that what is under way still fits.
void Target::CheckSpace(bool forget_downstream) {
  if (closing_) return;
  const Space now = space();
  const bool full = now.free < now.reserved + std::min<uint64_t>(now.capacity / 20, kSpaceMargin);
  machine_.OnSpace(full, forget_downstream);
}

void Target::ExpireClient(Incarnation client) {
  if (!closing_) machine_.OnClientExpired(client);
}

ServerEvent Target::NewEvent(ServerEvent::Kind kind) const {
  ServerEvent event;
  event.kind = kind;
  event.target = identity_.id;
  event.chain = config_.chain;
  event.chain_version = config_.version;
  return event;
}

}  // namespace fs3
