// Space: blocks and log bytes for updates, within the capacity and its reserve.
#include <algorithm>

#include "fs3/native/chunk/store_impl.h"

namespace fs3 {
namespace {

// Files grow by this much at a time, so that an update rarely waits for it.
constexpr uint64_t kGrowthMax = 16ULL << 20;
constexpr uint64_t kGrowthsPerTarget = 64;

Status NoSpace() {
  return {Code::kNoSpace, "the target is full: remove files or add storage, then retry"};
}

Piece PieceIn(const FreshBlock& fresh, uint32_t number) {
  return {fresh.begin, fresh.end - fresh.begin,        PieceKind::kBlock, fresh.class_log2,
          number,      fresh.begin - fresh.chunk_begin};
}

}  // namespace

Space ChunkStore::Impl::space() const {
  Space out;
  out.capacity = options_.capacity_bytes;
  out.used = blocks_.used_bytes() + log_.bytes();
  out.free = out.capacity > out.used ? out.capacity - out.used : 0;
  out.reserved = std::min(out.free, options_.reserve_bytes);
  return out;
}

bool ChunkStore::Impl::HasRoom(uint64_t bytes, bool use_reserve) const {
  const Space now = space();
  return bytes <= (use_reserve ? now.free : now.free - now.reserved);
}

Async<Result<uint32_t>> ChunkStore::Impl::TakeBlock(uint8_t class_log2, bool use_reserve) {
  const uint64_t bytes = uint64_t{1} << class_log2;
  if (!HasRoom(bytes, use_reserve) && !retired_.empty()) {
    // What earlier versions still hold comes back with a flush.
    if (Status status = co_await FlushNow(); !status.ok()) co_return status;
  }
  while (true) {
    if (!HasRoom(bytes, use_reserve)) co_return NoSpace();
    if (const auto number = blocks_.Take(class_log2)) co_return *number;
    if (Status status = co_await BackBlocks(class_log2, use_reserve); !status.ok()) {
      co_return status;
    }
  }
}

// Leaves at least one free backed block, unless another update takes it first.
Async<Status> ChunkStore::Impl::BackBlocks(uint8_t class_log2, bool use_reserve) {
  const Turn::Guard turn = co_await growth_turn_.Take();
  if (blocks_.HasFree(class_log2)) co_return Status::Ok();
  const uint64_t bytes = uint64_t{1} << class_log2;
  if (!HasRoom(bytes, use_reserve)) co_return NoSpace();
  const auto room = [this] {
    const uint64_t backed = blocks_.backed_bytes() + log_.bytes();
    return options_.capacity_bytes > backed ? options_.capacity_bytes - backed : 0;
  };
  if (room() < bytes) {
    if (Status status = co_await GiveBackBlocks(bytes); !status.ok()) co_return status;
  }
  const uint64_t growth_bytes =
      std::max(bytes, std::min(kGrowthMax, options_.capacity_bytes / kGrowthsPerTarget));
  const BlockRun run = blocks_.NextUnbacked(class_log2, std::min(growth_bytes, room()));
  Gather growth;
  disk_.Allocate(run.file(), run.position(), run.bytes(), growth.Add());
  if (Status status = co_await growth; !status.ok()) co_return status;
  blocks_.AddBacked(run);
  co_return Status::Ok();
}

// Returns disk space of free blocks of any class to the file system.
Async<Status> ChunkStore::Impl::GiveBackBlocks(uint64_t bytes_min) {
  Gather punches;
  for (const BlockRun& run : blocks_.GiveUpBacked(bytes_min)) {
    disk_.Punch(run.file(), run.position(), run.bytes(), punches.Add());
  }
  co_return co_await punches;
}

Async<Status> ChunkStore::Impl::PlaceFresh(ResidentChunk& chunk, std::vector<FreshBlock> fresh,
                                           bool use_reserve, Placement& out) {
  for (const FreshBlock& block : fresh) {
    const Result<uint32_t> number = co_await TakeBlock(block.class_log2, use_reserve);
    if (!number.ok()) co_return number.status();
    out.pieces.push_back(PieceIn(block, number.value()));
    Acquire(chunk, {&out.pieces.back(), 1});
  }
  co_return Status::Ok();
}

// kBusy when the log has no room for another segment.
Async<Status> ChunkStore::Impl::PlaceInLog(ResidentChunk& chunk, uint32_t begin, uint32_t end,
                                           bool use_reserve, Placement& out) {
  auto place = log_.Append(chunk.id, end - begin);
  if (!place) {
    const Turn::Guard turn = co_await log_turn_.Take();
    place = log_.Append(chunk.id, end - begin);
    if (!place) {
      if (log_.full() || !HasRoom(log_.segment_bytes(), use_reserve)) {
        co_return Status(Code::kBusy, "the small-write log is full");
      }
      const uint64_t backed = blocks_.backed_bytes() + log_.bytes();
      if (backed + log_.segment_bytes() > options_.capacity_bytes) {
        Status status = co_await GiveBackBlocks(log_.segment_bytes());
        if (!status.ok()) co_return status;
      }
      Gather growth;
      disk_.Allocate({FileId::Kind::kLog, 0, log_.next_segment()}, 0, log_.segment_bytes(),
                     growth.Add());
      if (Status status = co_await growth; !status.ok()) co_return status;
      log_.AddSegment();
      if (!log_.ChunksToDrain().empty()) RequestFlush();
      place = log_.Append(chunk.id, end - begin);
    }
  }
  out.pieces.push_back({begin, end - begin, PieceKind::kLog, 0, place->segment, place->position});
  Acquire(chunk, {&out.pieces.back(), 1});
  co_return Status::Ok();
}

// Places granules by the rules of placement.h. On error nothing stays acquired.
Async<ChunkStore::Impl::Placement> ChunkStore::Impl::Place(ResidentChunk& chunk,
                                                           const PlaceRequest& request,
                                                           bool use_reserve) {
  Placement out;
  for (const PlannedRun& run : PlanRuns(request)) {
    if (run.target == PlaceTarget::kTail) {
      out.pieces.push_back({run.begin, run.end - run.begin, PieceKind::kBlock, run.tail.class_log2,
                            run.tail.number, run.begin - run.tail.chunk_begin});
      Acquire(chunk, {&out.pieces.back(), 1});
      continue;
    }
    if (run.target == PlaceTarget::kLog) {
      out.status = co_await PlaceInLog(chunk, run.begin, run.end, use_reserve, out);
    }
    const bool log_is_full = out.status.code() == Code::kBusy;
    if (run.target == PlaceTarget::kFresh || log_is_full) {
      std::vector<FreshBlock> fresh;
      if (request.large || log_is_full) {
        fresh = PlanLargeBlocks(run.begin, run.end);
      } else {
        fresh = {PlanGrowingBlock(run.begin, run.end, request.chunk_size, chunk.blocks)};
      }
      out.status = co_await PlaceFresh(chunk, std::move(fresh), use_reserve, out);
    }
    if (!out.status.ok()) {
      Release(chunk, out.pieces);
      out.pieces.clear();
      break;
    }
  }
  co_return out;
}

void ChunkStore::Impl::Acquire(ResidentChunk& chunk, std::span<const Piece> pieces) {
  chunk.AddReferences(pieces);
  for (const Piece& piece : pieces) {
    if (piece.kind == PieceKind::kLog) log_.Acquire(piece.number, piece.length);
  }
}

void ChunkStore::Impl::Release(ResidentChunk& chunk, std::span<const Piece> pieces) {
  for (const BlockUse& block : chunk.DropReferences(pieces)) {
    blocks_.Free(block.class_log2, block.number);
  }
  for (const Piece& piece : pieces) {
    if (piece.kind == PieceKind::kLog) log_.Release(piece.number, piece.length);
  }
}

}  // namespace fs3
