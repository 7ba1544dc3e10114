// Which chunks are in memory: those at work, those with more than their committed version, and
// the most recently used others.
#include <algorithm>

#include "fs3/native/chunk/store_impl.h"

namespace fs3 {

ChunkStore::Impl::Use::Use(Impl& store, const ChunkId& id)
    : store_(store), chunk_(store.Resident(id)) {
  ++chunk_.users;
  if (!chunk_.idle_at) return;
  store_.idle_.erase(*chunk_.idle_at);
  store_.idle_bytes_ -= chunk_.idle_bytes;
  chunk_.idle_at.reset();
}

ChunkStore::Impl::Use::~Use() {
  --chunk_.users;
  store_.Settle(chunk_);
}

ChunkStore::Impl::InFlight::~InFlight() {
  if (--store_.in_flight_ > 0 || !store_.idle_waiter_) return;
  Done waiter = std::move(store_.idle_waiter_);
  waiter(Status::Ok());
}

ResidentChunk& ChunkStore::Impl::Resident(const ChunkId& id) {
  auto& slot = resident_[id];
  if (!slot) slot = std::make_unique<ResidentChunk>(id, resume_queue_);
  return *slot;
}

// Keeps, lists as evictable or forgets a chunk, whichever it is due.
void ChunkStore::Impl::Settle(ResidentChunk& chunk) {
  if (chunk.users > 0 || chunk.idle_at) return;
  if (chunk.held.empty()) {
    resident_.erase(chunk.id);
    return;
  }
  if (!chunk.restorable()) return;
  idle_.push_front(&chunk);
  chunk.idle_at = idle_.begin();
  chunk.idle_bytes = sizeof chunk + chunk.held[0].record->memory_bytes();
  idle_bytes_ += chunk.idle_bytes;
  while (idle_bytes_ > options_.record_cache_bytes) {
    ResidentChunk& oldest = *idle_.back();
    idle_.pop_back();
    idle_bytes_ -= oldest.idle_bytes;
    resident_.erase(oldest.id);
  }
}

Async<Status> ChunkStore::Impl::Load(ResidentChunk& chunk) {
  if (chunk.loaded) co_return Status::Ok();
  const ChunkMap::Entry* entry = map_.Find(chunk.id);
  if (entry != nullptr) {
    const uint64_t ordinal = entry->ordinal;
    Arrival<std::optional<std::string>> arrival;
    kv_.Get(EncodeKey(kVersionSpace, {chunk.id, ordinal}), arrival.Expect());
    const auto value = co_await arrival;
    if (!value.ok()) co_return value.status();
    if (!value.value()) co_return Status(Code::kCorrupt, "the record of the chunk is missing");
    Result<Record> record = DecodeRecord(*value.value());
    if (!record.ok()) co_return record.status();
    record.value().ordinal = ordinal;
    auto shared = std::make_shared<const Record>(std::move(record.value()));
    chunk.AddReferences(shared->pieces);
    chunk.held.push_back({std::move(shared), HeldState::kCommitted});
  }
  chunk.loaded = true;
  co_return Status::Ok();
}

Async<Status> ChunkStore::Impl::EnsureLoaded(ResidentChunk& chunk) {
  if (chunk.loaded) co_return Status::Ok();
  const Turn::Guard turn = co_await chunk.turn.Take();
  co_return co_await Load(chunk);
}

// The version no longer counts. Its bytes stay until a flush has made that durable; so does its
// record, as what to fall back to, unless `delete_now`.
void ChunkStore::Impl::Retire(ResidentChunk& chunk, const Record& record, bool delete_now) {
  const auto held = std::find_if(chunk.held.begin(), chunk.held.end(), [&](const HeldVersion& v) {
    return v.record->ordinal == record.ordinal;
  });
  const RecordKey key{chunk.id, record.ordinal};
  if (held->state == HeldState::kPending) {
    lazy_.push_back({EncodeKey(kPendingSpace, key), std::nullopt});
  }
  if (delete_now) lazy_.push_back({EncodeKey(kVersionSpace, key), std::nullopt});
  held->state = HeldState::kRetired;
  retired_.push_back({chunk.id, record.ordinal, flushes_begun_, !delete_now});
}

void ChunkStore::Impl::Fail(const Status& status) {
  if (failure_.ok()) failure_ = status;
}

Status ChunkStore::Impl::CheckService() const {
  if (failure_.ok()) return Status::Ok();
  return {Code::kUnavailable, "the target is out of service: " + failure_.message()};
}

}  // namespace fs3
