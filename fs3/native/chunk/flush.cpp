// Flushing: data first, then the records and the mark that says they are durable, then the space
// of what they replaced.
#include <algorithm>

#include "fs3/native/chunk/store_impl.h"

namespace fs3 {

void ChunkStore::Impl::Flush(Done done) {
  flush_waiters_.push_back(std::move(done));
  if (!flushing_) RunFlushes();
}

Async<Status> ChunkStore::Impl::FlushNow() {
  Gather flushed;
  Flush(flushed.Add());
  co_return co_await flushed;
}

// One flush at a time; those who ask meanwhile share the next one.
Detached ChunkStore::Impl::RunFlushes() {
  const InFlight in_flight(*this);
  flushing_ = true;
  while (!flush_waiters_.empty()) {
    std::vector<Done> waiters = std::exchange(flush_waiters_, {});
    const Status status = co_await FlushOnce();
    for (Done& waiter : waiters) waiter(status);
  }
  flushing_ = false;
  RunFolds();
}

Async<Status> ChunkStore::Impl::FlushOnce() {
  if (Status status = CheckService(); !status.ok()) co_return status;
  if (last_ordinal_ == durable_ordinal_ && lazy_.empty() && retired_.empty()) {
    co_return Status::Ok();
  }
  const uint64_t flush = ++flushes_begun_;
  // Every record up to here was made after its data had been written.
  const uint64_t ordinal = last_ordinal_;
  Gather syncs;
  for (const FileId& file : std::exchange(dirty_files_, {})) disk_.Sync(file, syncs.Add());
  if (Status status = co_await syncs; !status.ok()) {
    Fail(status);  // what the kernel could not write it may have dropped
    co_return status;
  }
  Gather recorded;
  Persist({{std::string(1, kStoreSpace), EncodeState({ordinal, options_.boot_id})}},
          recorded.Add());
  kv_.Sync(recorded.Add());
  if (Status status = co_await recorded; !status.ok()) {
    Fail(status);
    co_return status;
  }
  durable_ordinal_ = ordinal;
  ++counters_.flushes;
  ReleaseRetired(flush);
  co_return co_await RemoveDeadSegments();
}

// Gives the space back of versions whose replacement this flush has made durable.
void ChunkStore::Impl::ReleaseRetired(uint64_t flush) {
  std::vector<Retired> kept;
  for (Retired& retired : std::exchange(retired_, {})) {
    if (retired.flush >= flush) {
      kept.push_back(retired);
      continue;
    }
    if (std::exchange(retired.delete_key, false)) {
      lazy_.push_back({EncodeKey(kVersionSpace, {retired.chunk, retired.ordinal}), std::nullopt});
    }
    ResidentChunk& chunk = Resident(retired.chunk);
    const auto version = std::find_if(
        chunk.held.begin(), chunk.held.end(),
        [&](const HeldVersion& held) { return held.record->ordinal == retired.ordinal; });
    if (version->record.use_count() > 1) {  // a reader is at it
      kept.push_back(retired);
      continue;
    }
    const auto record = std::move(version->record);
    chunk.held.erase(version);
    Release(chunk, record->pieces);
    Settle(chunk);
  }
  retired_.insert(retired_.begin(), kept.begin(), kept.end());
}

Async<Status> ChunkStore::Impl::RemoveDeadSegments() {
  Gather removals;
  for (const uint32_t segment : log_.TakeDead()) {
    const FileId file{FileId::Kind::kLog, 0, segment};
    dirty_files_.erase(file);
    disk_.Remove(file, removals.Add());
  }
  co_return co_await removals;
}

// Deletions that were waiting travel first.
void ChunkStore::Impl::Persist(MetaKv::Batch batch, MetaKv::Done done) {
  MetaKv::Batch all = std::exchange(lazy_, {});
  for (auto& mutation : batch) all.push_back(std::move(mutation));
  for (const auto& mutation : all) {
    counters_.metadata_bytes += mutation.key.size() + mutation.value.value_or("").size();
  }
  kv_.Write(std::move(all), [this, done = std::move(done)](Status status) mutable {
    if (!status.ok()) Fail(status);
    done(std::move(status));
  });
}

}  // namespace fs3
