// Reading: every granule that is touched is read whole and compared with its checksum.
#include <algorithm>
#include <cstring>

#include "fs3/native/chunk/granule_crc.h"
#include "fs3/native/chunk/store_impl.h"

namespace fs3 {
namespace {

// Up to here an unaligned read goes through a scratch buffer in one piece.
constexpr uint32_t kScratchMax = 64U << 10;

uint32_t RoundDown(uint32_t value, uint32_t unit) { return value / unit * unit; }
uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

Status CorruptGranule(const Record& record, uint32_t offset) {
  const Piece& piece = *record.Find(offset);
  return {Code::kCorrupt, "checksum of chunk bytes at " + std::to_string(offset) + " (" +
                              FileName(FileOf(piece)) + " at " +
                              std::to_string(PositionOf(piece, offset)) + ") does not match"};
}

// CRC of whole granules [begin, end) from the record.
uint32_t CombinedCrc(const Record& record, uint32_t begin, uint32_t end) {
  const uint32_t granule = record.granule();
  const CrcAppender& appender = AppenderFor(granule);
  uint32_t crc = 0;
  for (uint32_t at = begin; at < end; at += granule) {
    crc = appender.Append(crc, record.Find(at) ? record.crcs[at / granule] : appender.zeros());
  }
  return crc;
}

}  // namespace

// Granules [begin, end), holes as zeros, into `to`.
Async<Status> ChunkStore::Impl::ReadGranules(const Record& record, uint32_t begin, uint32_t end,
                                             uint8_t* to) {
  Gather reads;
  uint32_t filled = begin;
  for (const Piece& piece : record.pieces) {
    const uint32_t from = std::max(piece.offset, begin);
    const uint32_t until = std::min(piece.end(), end);
    if (from >= until) continue;
    std::memset(to + (filled - begin), 0, from - filled);
    disk_.Read(FileOf(piece), PositionOf(piece, from), {to + (from - begin), until - from},
               reads.Add());
    filled = until;
  }
  std::memset(to + (filled - begin), 0, end - filled);
  if (Status status = co_await reads; !status.ok()) co_return status;

  const uint32_t granule = record.granule();
  for (const Piece& piece : record.pieces) {
    const uint32_t until = std::min(piece.end(), end);
    for (uint32_t at = std::max(piece.offset, begin); at < until; at += granule) {
      if (Crc32c(to + (at - begin), granule) == record.crcs[at / granule]) continue;
      ++counters_.corrupt_granules;
      co_return CorruptGranule(record, at);
    }
  }
  co_return Status::Ok();
}

Async<Result<ReadResult>> ChunkStore::Impl::ReadRange(const Record& record,
                                                      const ReadRequest& request) {
  ReadResult result{record.version, 0, 0, record.length, record.truncate_version};
  if (request.offset >= record.length) co_return result;
  const uint32_t begin = request.offset;
  const uint32_t end = begin + std::min(request.length, record.length - begin);
  const uint32_t granule = record.granule();
  result.size = end - begin;

  // Whole granules go straight to the caller, the ragged ends through scratch.
  uint32_t direct_begin = RoundUp(begin, granule);
  uint32_t direct_end = RoundDown(end, granule);
  const bool is_ragged = direct_begin != begin || direct_end != end;
  if (direct_begin >= direct_end || (is_ragged && result.size <= kScratchMax)) {
    const uint32_t from = RoundDown(begin, granule);
    std::vector<uint8_t> scratch(RoundUp(end, granule) - from);
    Status status = co_await ReadGranules(record, from, from + scratch.size(), scratch.data());
    if (!status.ok()) co_return status;
    std::memcpy(request.into, scratch.data() + (begin - from), result.size);
    result.crc = Crc32c(request.into, result.size);
    co_return result;
  }

  Status status = co_await ReadGranules(record, direct_begin, direct_end,
                                        request.into + (direct_begin - begin));
  if (!status.ok()) co_return status;
  std::vector<uint8_t> scratch(is_ragged ? granule : 0);
  if (begin < direct_begin) {
    status = co_await ReadGranules(record, direct_begin - granule, direct_begin, scratch.data());
    if (!status.ok()) co_return status;
    const uint32_t head = direct_begin - begin;
    std::memcpy(request.into, scratch.data() + (granule - head), head);
    result.crc = Crc32c(request.into, head);
  }
  result.crc = Crc32cCombine(result.crc, CombinedCrc(record, direct_begin, direct_end),
                             direct_end - direct_begin);
  if (direct_end < end) {
    status = co_await ReadGranules(record, direct_end, direct_end + granule, scratch.data());
    if (!status.ok()) co_return status;
    std::memcpy(request.into + (direct_end - begin), scratch.data(), end - direct_end);
    result.crc = Crc32c(scratch.data(), end - direct_end, result.crc);
  }
  co_return result;
}

Detached ChunkStore::Impl::Read(ReadRequest request, Callback<ReadResult> done) {
  const InFlight in_flight(*this);
  ++counters_.reads;
  Result<ReadResult> result(Status(Code::kNotFound, "no such chunk"));
  {
    const Use chunk(*this, request.chunk);
    Status status = co_await EnsureLoaded(*chunk);
    // Holding the record keeps its bytes in place, whatever happens to the chunk meanwhile.
    const auto record = request.version ? chunk->WithVersion(*request.version) : chunk->Committed();
    if (!status.ok()) {
      result = status;
    } else if (record && !record->tombstone) {
      result = co_await ReadRange(*record, request);
    } else if (!record && request.version && chunk->Newest()) {
      result = Status(Code::kConflict, "that version of the chunk is not here");
    }
  }
  done(std::move(result));
}

}  // namespace fs3
