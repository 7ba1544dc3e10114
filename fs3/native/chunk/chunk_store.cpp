// The public face, and the operations that only change which versions count.
#include "fs3/native/chunk/chunk_store.h"

#include <algorithm>

#include "fs3/native/chunk/store_impl.h"

namespace fs3 {

ChunkStore::ChunkStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChunkStore::~ChunkStore() = default;

void ChunkStore::Close(Done done) { impl_->Close(std::move(done)); }
void ChunkStore::Prepare(const Update& update, Callback<Prepared> done) {
  impl_->Prepare(update, std::move(done));
}
Status ChunkStore::Commit(const ChunkId& chunk, Version version) {
  return impl_->Commit(chunk, version);
}
Status ChunkStore::Abandon(const ChunkId& chunk, Version version) {
  return impl_->Abandon(chunk, version);
}
void ChunkStore::Forget(const ChunkId& chunk, Version version, Done done) {
  impl_->Forget(chunk, version, std::move(done));
}
void ChunkStore::Read(const ReadRequest& request, Callback<ReadResult> done) {
  impl_->Read(request, std::move(done));
}
void ChunkStore::Stat(const ChunkId& chunk, Callback<ChunkInfo> done) {
  impl_->Stat(chunk, std::move(done));
}
void ChunkStore::List(const ChunkId& from, size_t limit, Callback<ChunkList> done) {
  impl_->List(from, limit, std::move(done));
}
void ChunkStore::Flush(Done done) { impl_->Flush(std::move(done)); }
std::vector<ChunkId> ChunkStore::PendingChunks() const { return impl_->PendingChunks(); }
Space ChunkStore::space() const { return impl_->space(); }
StoreCounters ChunkStore::counters() const { return impl_->counters(); }

ChunkStore::Impl::Impl(Disk& disk, MetaKv& kv, const ChunkStoreOptions& options)
    : disk_(disk),
      kv_(kv),
      options_(options),
      log_(options.log_segment_bytes, options.log_segments_max) {}
ChunkStore::Impl::~Impl() = default;

Status ChunkStore::Impl::Commit(const ChunkId& id, Version version) {
  const auto at = resident_.find(id);
  if (at == resident_.end() || !at->second->has_pending()) {
    if (map_.Find(id) != nullptr) return Status::Ok();
    return {Code::kNotFound, "no such chunk"};
  }
  ResidentChunk& chunk = *at->second;
  const auto committed =
      std::find_if(chunk.held.rbegin(), chunk.held.rend(), [&](const HeldVersion& held) {
        return held.state == HeldState::kPending && held.record->version == version;
      });
  if (committed == chunk.held.rend()) {
    const auto current = chunk.Committed();
    if (current && version <= current->version) return Status::Ok();
    return {Code::kNotFound, "no such pending version"};
  }
  const auto record = committed->record;
  for (const HeldVersion& held : chunk.held) {
    if (held.record == record) break;
    if (held.state != HeldState::kRetired) Retire(chunk, *held.record, /*delete_now=*/false);
  }
  committed->state = HeldState::kCommitted;
  lazy_.push_back({EncodeKey(kPendingSpace, {id, record->ordinal}), std::nullopt});
  map_.Insert(id).ordinal = record->ordinal;
  Settle(chunk);
  ConsiderFolding(id, *record);
  return Status::Ok();
}

Status ChunkStore::Impl::Abandon(const ChunkId& id, Version version) {
  const auto at = resident_.find(id);
  if (at == resident_.end()) return {Code::kNotFound, "no such pending version"};
  ResidentChunk& chunk = *at->second;
  for (size_t i = 0; i < chunk.held.size(); ++i) {
    if (chunk.held[i].state != HeldState::kPending) continue;
    if (chunk.held[i].record->version != version) continue;
    DropPending(chunk, i);
    return Status::Ok();
  }
  return {Code::kNotFound, "no such pending version"};
}

// Drops pending versions from the given place on.
void ChunkStore::Impl::DropPending(ResidentChunk& chunk, size_t first) {
  for (size_t i = first; i < chunk.held.size(); ++i) {
    if (chunk.held[i].state != HeldState::kPending) continue;
    Retire(chunk, *chunk.held[i].record, /*delete_now=*/true);
  }
  if (!chunk.Newest()) map_.Erase(chunk.id);
}

Detached ChunkStore::Impl::Forget(ChunkId id, Version version, Done done) {
  const InFlight in_flight(*this);
  Status status;
  {
    const Use chunk(*this, id);
    const Turn::Guard turn = co_await chunk->turn.Take();
    status = co_await Load(*chunk);
    const auto record = chunk->Newest();
    const bool is_there =
        record && record->tombstone && record->version == version && record == chunk->Committed();
    if (status.ok() && !is_there) status = {Code::kNotFound, "no such tombstone"};
    if (status.ok()) {
      Retire(*chunk, *record, /*delete_now=*/true);
      map_.Erase(id);
    }
  }
  done(status);
}

Detached ChunkStore::Impl::Stat(ChunkId id, Callback<ChunkInfo> done) {
  const InFlight in_flight(*this);
  Result<ChunkInfo> result(Status(Code::kNotFound, "no such chunk"));
  {
    const Use chunk(*this, id);
    Status status = co_await EnsureLoaded(*chunk);
    if (!status.ok()) {
      result = status;
    } else if (chunk->Newest()) {
      result = Describe(*chunk);
    }
  }
  done(std::move(result));
}

ChunkInfo ChunkStore::Impl::Describe(const ResidentChunk& chunk) {
  const auto newest = chunk.Newest();
  ChunkInfo info{chunk.id, newest->chunk_size, std::nullopt, {}, newest->once};
  for (const HeldVersion& held : chunk.held) {
    if (held.state == HeldState::kCommitted) info.committed = held.record->info();
    if (held.state == HeldState::kPending) info.pending.push_back(held.record->info());
  }
  return info;
}

// In order of the metadata; chunks in memory are described from there, since what is recorded
// about them may be behind.
Detached ChunkStore::Impl::List(ChunkId from, size_t limit, Callback<ChunkList> done) {
  const InFlight in_flight(*this);
  // Room for versions that are on their way out.
  const size_t scan_limit = limit + kFoldPieces;
  Result<ChunkList> result(ChunkList{});
  ChunkList& list = result.value();
  std::string begin = EncodeKey(kVersionSpace, {from, 0});
  const std::string end(1, kVersionSpace + 1);
  for (bool at_end = false; !at_end && !list.next;) {
    Arrival<std::vector<MetaKv::Pair>> page;
    kv_.Scan(begin, end, scan_limit, page.Expect());
    const auto pairs = co_await page;
    if (!pairs.ok()) {
      result = pairs.status();
      break;
    }
    for (const auto& [key, value] : pairs.value()) {
      const RecordKey at = DecodeKey(key).value();
      if (!list.chunks.empty() && list.chunks.back().chunk == at.chunk) continue;
      if (list.chunks.size() == limit) {
        list.next = at.chunk;
        break;
      }
      if (auto info = DescribeListed(at, value)) list.chunks.push_back(std::move(*info));
    }
    at_end = pairs.value().size() < scan_limit;
    if (!at_end) begin = pairs.value().back().first + '\0';
  }
  done(std::move(result));
}

std::optional<ChunkInfo> ChunkStore::Impl::DescribeListed(const RecordKey& key,
                                                          std::string_view value) {
  const ChunkMap::Entry* entry = map_.Find(key.chunk);
  if (entry == nullptr) return std::nullopt;
  const auto resident = resident_.find(key.chunk);
  if (resident != resident_.end() && resident->second->loaded) {
    if (!resident->second->Newest()) return std::nullopt;
    return Describe(*resident->second);
  }
  if (entry->ordinal != key.ordinal) return std::nullopt;
  Result<Record> record = DecodeRecord(value);
  if (!record.ok()) return std::nullopt;  // met again, with its error, by whoever reads it
  return ChunkInfo{key.chunk,
                   record.value().chunk_size,
                   record.value().info(),
                   {},
                   std::move(record.value().once)};
}

Detached ChunkStore::Impl::Close(Done done) {
  closing_ = true;
  Status status = co_await FlushNow();
  if (in_flight_ == 0) {
    done(status);
    co_return;
  }
  idle_waiter_ = [done = std::move(done), status](const Status&) mutable { done(status); };
}

std::vector<ChunkId> ChunkStore::Impl::PendingChunks() const {
  std::vector<ChunkId> out;
  for (const auto& [id, chunk] : resident_) {
    if (chunk->has_pending()) out.push_back(id);
  }
  std::sort(out.begin(), out.end());
  return out;
}

StoreCounters ChunkStore::Impl::counters() const {
  StoreCounters out = counters_;
  out.chunks = map_.size();
  return out;
}

}  // namespace fs3
