// Opening: the metadata says which versions there are; after a possible power loss those that were
// not flushed are read and must match their checksums. What is then used decides what is free.
#include <algorithm>
#include <bit>

#include "fs3/native/chunk/store_impl.h"

namespace fs3 {
namespace {

constexpr size_t kScanPage = 1024;
constexpr uint64_t kSegmentMin = 1ULL << 20;
constexpr uint64_t kSegmentMax = 1ULL << 30;

uint64_t SegmentFor(const ChunkStoreOptions& options) {
  constexpr uint64_t kSegmentDefault = 64ULL << 20;
  constexpr uint64_t kSegmentsPerTarget = 256;
  return std::clamp(std::bit_floor(options.capacity_bytes / kSegmentsPerTarget), kSegmentMin,
                    kSegmentDefault);
}

Status CheckOptions(const ChunkStoreOptions& options) {
  if (options.capacity_bytes == 0 || options.reserve_bytes >= options.capacity_bytes) {
    return {Code::kInvalidArgument, "the capacity of a target must exceed its reserve"};
  }
  if (options.log_segment_bytes < kSegmentMin || options.log_segment_bytes > kSegmentMax ||
      options.log_segments_max < 2) {
    return {Code::kInvalidArgument, "log segments must be 2 or more, of 1 MiB to 1 GiB"};
  }
  return Status::Ok();
}

Detached OpenStore(std::unique_ptr<ChunkStore::Impl> impl,
                   Function<void(std::unique_ptr<ChunkStore::Impl>, Status)> done) {
  Status status = co_await impl->Restore();
  done(std::move(impl), std::move(status));
}

}  // namespace

void ChunkStore::Open(Disk& disk, MetaKv& kv, ChunkStoreOptions options,
                      Callback<std::unique_ptr<ChunkStore>> done) {
  if (options.log_segment_bytes == 0) options.log_segment_bytes = SegmentFor(options);
  if (Status status = CheckOptions(options); !status.ok()) {
    done(std::move(status));
    return;
  }
  OpenStore(std::make_unique<Impl>(disk, kv, options),
            [done = std::move(done)](std::unique_ptr<Impl> impl, Status status) mutable {
              if (!status.ok()) return done(std::move(status));
              done(std::unique_ptr<ChunkStore>(new ChunkStore(std::move(impl))));
            });
}

// Versions of one chunk, oldest first.
struct ChunkStore::Impl::Group {
  ChunkId chunk;
  std::vector<Record> records;
};

Async<Status> ChunkStore::Impl::Restore() {
  const InFlight in_flight(*this);
  StoreState state;
  std::set<RecordKey> pending;
  Status status = co_await RestoreState(state);
  if (status.ok()) status = co_await RestorePending(pending);
  if (status.ok()) status = RestoreFiles();
  if (status.ok()) status = co_await RestoreVersions(state, pending);
  if (!status.ok()) co_return status;

  // Nothing may be reused before the state found here is itself durable.
  status = co_await FlushOnce();
  if (!status.ok()) co_return status;
  co_return co_await PunchFree();
}

Async<Status> ChunkStore::Impl::RestoreState(StoreState& state) {
  Arrival<std::optional<std::string>> arrival;
  kv_.Get(std::string(1, kStoreSpace), arrival.Expect());
  const auto value = co_await arrival;
  if (!value.ok()) co_return value.status();
  if (!value.value()) co_return Status::Ok();
  Result<StoreState> decoded = DecodeState(*value.value());
  if (!decoded.ok()) co_return decoded.status();
  state = decoded.value();
  last_ordinal_ = state.durable_ordinal;
  co_return Status::Ok();
}

Async<Status> ChunkStore::Impl::RestorePending(std::set<RecordKey>& pending) {
  std::string begin(1, kPendingSpace);
  const std::string end(1, kPendingSpace + 1);
  while (true) {
    Arrival<std::vector<MetaKv::Pair>> arrival;
    kv_.Scan(begin, end, kScanPage, arrival.Expect());
    const auto page = co_await arrival;
    if (!page.ok()) co_return page.status();
    for (const auto& [key, value] : page.value()) {
      const Result<RecordKey> decoded = DecodeKey(key);
      if (!decoded.ok()) co_return decoded.status();
      pending.insert(decoded.value());
    }
    if (page.value().size() < kScanPage) co_return Status::Ok();
    begin = page.value().back().first + '\0';
  }
}

Status ChunkStore::Impl::RestoreFiles() {
  const auto files = disk_.List();
  if (!files.ok()) return files.status();
  for (const auto& [file, size] : files.value()) {
    dirty_files_.insert(file);  // what an earlier process wrote may still be in the page cache
    if (file.kind == FileId::Kind::kLog) {
      log_.Restore(file.number, size);
    } else {
      blocks_.Reach(file.class_log2, (file.number << (kBlockFileLog2 - file.class_log2)) +
                                         static_cast<uint32_t>(size >> file.class_log2));
    }
  }
  return Status::Ok();
}

Async<Status> ChunkStore::Impl::RestoreVersions(const StoreState& state,
                                                const std::set<RecordKey>& pending) {
  std::string begin(1, kVersionSpace);
  const std::string end(1, kVersionSpace + 1);
  Group group;
  while (true) {
    Arrival<std::vector<MetaKv::Pair>> arrival;
    kv_.Scan(begin, end, kScanPage, arrival.Expect());
    const auto page = co_await arrival;
    if (!page.ok()) co_return page.status();
    for (const auto& [key, value] : page.value()) {
      const Result<RecordKey> decoded = DecodeKey(key);
      if (!decoded.ok()) co_return decoded.status();
      Result<Record> record = DecodeRecord(value);
      if (!record.ok()) co_return record.status();
      record.value().ordinal = decoded.value().ordinal;
      last_ordinal_ = std::max(last_ordinal_, record.value().ordinal);
      if (decoded.value().chunk != group.chunk) {
        Status status = co_await RestoreChunk(std::exchange(group, {}), state, pending);
        if (!status.ok()) co_return status;
        group.chunk = decoded.value().chunk;
      }
      group.records.push_back(std::move(record.value()));
    }
    if (page.value().size() < kScanPage) break;
    begin = page.value().back().first + '\0';
  }
  co_return co_await RestoreChunk(std::move(group), state, pending);
}

// Chooses the committed version, the newest that is whole, and the pending ones after it.
Async<Status> ChunkStore::Impl::RestoreChunk(Group group, const StoreState& state,
                                             const std::set<RecordKey>& pending) {
  const bool page_cache_survived = !options_.boot_id.empty() && options_.boot_id == state.boot_id;
  bool has_committed = false;
  std::vector<Record> kept_pending;  // newest first
  for (auto record = group.records.rbegin(); record != group.records.rend(); ++record) {
    const RecordKey key{group.chunk, record->ordinal};
    const bool is_pending = pending.contains(key);
    bool is_whole = true;
    if (!has_committed && record->ordinal > state.durable_ordinal && !page_cache_survived) {
      is_whole = co_await IsWhole(*record);
      if (!is_whole) ++counters_.dropped_at_open;
    }
    if (has_committed || !is_whole) {
      // In one batch with the mark of the first flush, which would call torn ones durable.
      lazy_.push_back({EncodeKey(kVersionSpace, key), std::nullopt});
      if (is_pending) lazy_.push_back({EncodeKey(kPendingSpace, key), std::nullopt});
    } else if (is_pending) {
      kept_pending.push_back(std::move(*record));
    } else {
      has_committed = true;
      HoldRestored(group.chunk, std::move(*record), HeldState::kCommitted);
    }
  }
  for (auto record = kept_pending.rbegin(); record != kept_pending.rend(); ++record) {
    HoldRestored(group.chunk, std::move(*record), HeldState::kPending);
  }
  if (const auto at = resident_.find(group.chunk); at != resident_.end()) Settle(*at->second);
  co_return Status::Ok();
}

// Whether all bytes of an unflushed version reached the media.
Async<bool> ChunkStore::Impl::IsWhole(const Record& record) {
  for (const Piece& piece : record.pieces) {
    if (piece.kind == PieceKind::kLog && !log_.Contains(piece.number)) co_return false;
    std::vector<uint8_t> scratch(piece.length);
    const Status status = co_await ReadGranules(record, piece.offset, piece.end(), scratch.data());
    if (!status.ok()) co_return false;
  }
  co_return true;
}

void ChunkStore::Impl::HoldRestored(const ChunkId& id, Record record, HeldState state) {
  ResidentChunk& chunk = Resident(id);
  chunk.loaded = true;
  for (const Piece& piece : record.pieces) {
    if (piece.kind == PieceKind::kBlock) {
      blocks_.MarkUsed(piece.class_log2, piece.number);
    } else {
      log_.RestoreUse(piece.number, id, piece.length);
    }
  }
  chunk.AddReferences(record.pieces);
  ChunkMap::Entry& entry = map_.Insert(id);
  if (state == HeldState::kCommitted) entry.ordinal = record.ordinal;
  chunk.held.push_back({std::make_shared<const Record>(std::move(record)), state});
}

// Free blocks within the files give their space back, so that what is backed is known.
Async<Status> ChunkStore::Impl::PunchFree() {
  Gather punches;
  for (const BlockRun& run : blocks_.FreeRuns()) {
    disk_.Punch(run.file(), run.position(), run.bytes(), punches.Add());
  }
  co_return co_await punches;
}

}  // namespace fs3
