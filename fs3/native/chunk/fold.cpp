// Folding: log pieces are copied to their place in the chunk's blocks, where their overwritten
// predecessors lie dead, so that a small overwrite ends up costing twice its size and no more.
//
// Safe at any moment: only bytes that no held version refers to are overwritten, and the record
// with the log pieces is kept until a flush has made the folded one durable.
#include <algorithm>

#include "fs3/native/chunk/store_impl.h"

namespace fs3 {
namespace {

constexpr size_t kFoldBatch = 64;  // chunks due that ask for a flush

// Appends a granule to pieces, longer where it continues the last one.
void Extend(std::vector<Piece>& pieces, const Piece& granule) {
  if (!pieces.empty() && pieces.back().end() == granule.offset &&
      pieces.back().SameBlock(granule)) {
    pieces.back().length += granule.length;
  } else {
    pieces.push_back(granule);
  }
}

void ExtendRun(std::vector<PlannedRun>& runs, uint32_t begin, uint32_t end) {
  if (!runs.empty() && runs.back().end == begin) {
    runs.back().end = end;
  } else {
    runs.push_back({begin, end, PlaceTarget::kFresh, {}});
  }
}

}  // namespace

// Called when the record becomes the committed one.
void ChunkStore::Impl::ConsiderFolding(const ChunkId& chunk, const Record& record) {
  if (record.pieces.size() <= kFoldPieces) return;
  fold_due_.insert(chunk);
  const bool is_urgent = record.pieces.size() > kFoldUrgentPieces || fold_due_.size() >= kFoldBatch;
  if (is_urgent) RequestFlush();
}

void ChunkStore::Impl::RequestFlush() {
  if (!flushing_ && !folding_ && !closing_ && failure_.ok()) Flush([](const Status&) {});
}

// After a flush most log bytes have a free place at home. One chunk after the other.
Detached ChunkStore::Impl::RunFolds() {
  if (folding_ || closing_) co_return;
  std::set<ChunkId> due = std::exchange(fold_due_, {});
  const std::vector<ChunkId> draining = log_.ChunksToDrain();
  due.insert(draining.begin(), draining.end());
  if (due.empty()) co_return;

  const InFlight in_flight(*this);
  folding_ = true;
  const uint64_t folded_before = counters_.folded_chunks;
  for (const ChunkId& id : due) {
    if (closing_ || !failure_.ok()) break;
    const Use chunk(*this, id);
    const Turn::Guard turn = co_await chunk->turn.Take();
    Status status = co_await Load(*chunk);
    if (status.ok()) status = co_await Fold(*chunk);
    if (!status.ok()) ++counters_.failed_folds;  // stays as it is, tried again when due again
  }
  folding_ = false;
  // The log bytes come free with the next flush; ask for it if they are needed.
  if (!draining.empty() && counters_.folded_chunks > folded_before) RequestFlush();
}

Async<Status> ChunkStore::Impl::Fold(ResidentChunk& chunk) {
  const std::shared_ptr<const Record> base = chunk.Committed();
  if (!base || chunk.has_pending()) co_return Status::Ok();
  auto next = std::make_shared<Record>(*base);
  const Placement homes = co_await MoveHome(chunk, *next);
  if (homes.pieces.empty()) co_return homes.status;
  Acquire(chunk, next->pieces);
  Release(chunk, homes.pieces);
  Retire(chunk, *base, /*delete_now=*/false);
  MetaKv::Batch batch = Hold(chunk, next, HeldState::kCommitted);
  map_.Insert(chunk.id).ordinal = next->ordinal;
  Gather persisted;
  Persist(std::move(batch), persisted.Add());
  co_return co_await persisted;
}

// Copies what can go home and changes the pieces of the record accordingly. The pieces returned
// are acquired; on error the record is as before and there are none.
Async<ChunkStore::Impl::Placement> ChunkStore::Impl::MoveHome(ResidentChunk& chunk,
                                                              Record& record) {
  Placement homes = co_await PlaceHome(chunk, record);
  std::vector<Source> sources;
  for (const Piece& piece : homes.pieces) {
    Source source{piece.offset, piece.end(), nullptr, std::vector<uint8_t>(piece.length)};
    source.bytes = source.scratch.data();
    homes.status = co_await ReadGranules(record, piece.offset, piece.end(), source.scratch.data());
    if (!homes.status.ok()) break;
    sources.push_back(std::move(source));
  }
  if (homes.status.ok()) homes.status = co_await WriteData(homes.pieces, sources);
  if (!homes.status.ok()) {
    Release(chunk, homes.pieces);
    homes.pieces.clear();
    co_return homes;
  }
  for (const Piece& piece : homes.pieces) Overlay(record.pieces, piece);
  if (!homes.pieces.empty()) ++counters_.folded_chunks;
  co_return homes;
}

// Home places, acquired, for the log granules of the committed record that have a free one.
Async<ChunkStore::Impl::Placement> ChunkStore::Impl::PlaceHome(ResidentChunk& chunk,
                                                               const Record& record) {
  const uint32_t granule = record.granule();
  Placement out;
  std::vector<PlannedRun> homeless;
  for (const Piece& piece : record.pieces) {
    if (piece.kind != PieceKind::kLog) continue;
    for (uint32_t at = piece.offset; at < piece.end(); at += granule) {
      const BlockUse* home = FindHome(chunk.blocks, at);
      if (home == nullptr) {
        ExtendRun(homeless, at, at + granule);
      } else if (!chunk.IsReferred(*home, at - home->chunk_begin)) {
        Extend(out.pieces, {at, granule, PieceKind::kBlock, home->class_log2, home->number,
                            at - home->chunk_begin});
      }
    }
  }
  Acquire(chunk, out.pieces);
  for (const PlannedRun& run : homeless) {
    if (FindHome(chunk.blocks, run.begin) != nullptr) continue;  // the last block covers it
    std::vector<FreshBlock> fresh;
    fresh.push_back(PlanGrowingBlock(run.begin, run.end, record.chunk_size, chunk.blocks));
    out.status = co_await PlaceFresh(chunk, std::move(fresh), /*use_reserve=*/true, out);
    if (out.status.ok()) continue;
    Release(chunk, out.pieces);
    out.pieces.clear();
    break;
  }
  co_return out;
}

}  // namespace fs3
