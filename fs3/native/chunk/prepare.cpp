// Updates: plan what is rewritten, place it, write it, record it as a pending version.
#include <algorithm>
#include <bit>
#include <cstring>

#include "fs3/native/chunk/granule_crc.h"
#include "fs3/native/chunk/store_impl.h"

namespace fs3 {
namespace {

uint32_t RoundDown(uint32_t value, uint32_t unit) { return value / unit * unit; }
uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

Status Invalid(const char* what) { return {Code::kInvalidArgument, what}; }

Status CheckShape(const Update& update) {
  if (!std::has_single_bit(update.chunk_size) || update.chunk_size < kChunkSizeMin ||
      update.chunk_size > kChunkSizeMax) {
    return Invalid("chunk size is not a power of two from 64 KiB to 64 MiB");
  }
  if (uint64_t{update.offset} + update.data.size() > update.chunk_size ||
      update.length > update.chunk_size) {
    return Invalid("the update reaches beyond the chunk");
  }
  if (update.replace_once.size() > kOnceRecordsMax) return Invalid("too many once records");
  return Status::Ok();
}

bool HasData(const Update& update) {
  return update.kind == UpdateKind::kWrite || update.kind == UpdateKind::kReplace;
}

Status ApplyOnce(const Update& update, Record& next) {
  std::erase_if(next.once, [&](const OnceRecord& record) {
    const bool is_acknowledged = update.once && record.client == update.once->client &&
                                 record.channel == update.once->channel &&
                                 record.sequence <= update.acknowledged_through;
    const auto& expired = update.expired_clients;
    return is_acknowledged ||
           std::find(expired.begin(), expired.end(), record.client) != expired.end();
  });
  if (!update.once) return Status::Ok();
  if (next.once.size() >= kOnceRecordsMax) {
    return {Code::kBusy, "too many unacknowledged operations on this chunk"};
  }
  OnceRecord record = *update.once;
  record.version = next.version;
  record.length = next.length;
  next.once.push_back(record);
  return Status::Ok();
}

}  // namespace

Detached ChunkStore::Impl::Prepare(Update update, Callback<Prepared> done) {
  const InFlight in_flight(*this);
  ++counters_.updates;
  Result<Prepared> result = co_await Apply(update);
  done(std::move(result));
}

Async<Result<Prepared>> ChunkStore::Impl::Apply(const Update& update) {
  if (Status status = CheckShape(update); !status.ok()) co_return status;
  const Use chunk(*this, update.chunk);
  Turn::Guard turn = co_await chunk->turn.Take();
  if (Status status = co_await Load(*chunk); !status.ok()) co_return status;
  if (Status status = CheckService(); !status.ok()) co_return status;

  Gather persisted;
  if (const auto duplicate = FindDuplicate(*chunk, update)) {
    Persist({}, persisted.Add());  // the first one may be on its way still
    if (Status status = co_await persisted; !status.ok()) co_return status;
    co_return *duplicate;
  }

  const std::shared_ptr<const Record> newest = chunk->Newest();
  if (Status status = Admit(newest.get(), update); !status.ok()) co_return status;
  Record base;
  base.chunk_size = update.chunk_size;
  if (newest && update.kind != UpdateKind::kReplace) base = *newest;
  Result<Record> planned = NextRecord(base, update);
  if (!planned.ok()) co_return planned.status();
  auto next = std::make_shared<Record>(std::move(planned.value()));
  Status status = co_await WriteEdit(*chunk, base, *next, update);
  if (!status.ok()) co_return status;
  if (chunk->Newest() != newest) {
    Release(*chunk, next->pieces);
    co_return Status(Code::kConflict, "the version this update is based on was abandoned");
  }

  if (update.kind == UpdateKind::kReplace) DropPending(*chunk, 0);
  const Prepared result{next->version, next->length, false};
  Persist(Hold(*chunk, std::move(next), HeldState::kPending), persisted.Add());
  turn.Release();
  status = co_await persisted;
  if (!status.ok()) co_return status;
  co_return result;
}

std::optional<Prepared> ChunkStore::Impl::FindDuplicate(const ResidentChunk& chunk,
                                                        const Update& update) {
  const auto newest = chunk.Newest();
  if (!newest || update.kind == UpdateKind::kReplace) return std::nullopt;
  if (update.once) {
    for (const OnceRecord& record : newest->once) {
      if (record.client == update.once->client && record.channel == update.once->channel &&
          record.sequence == update.once->sequence) {
        return Prepared{record.version, record.length, true};
      }
    }
  }
  const auto same = chunk.WithVersion(update.version);
  if (!same) return std::nullopt;
  return Prepared{same->version, same->length, true};
}

// Whether the update may follow the newest version (null: there is none).
Status ChunkStore::Impl::Admit(const Record* newest, const Update& update) {
  if (update.base && *update.base != (newest ? newest->version : Version())) {
    return {Code::kConflict, "the chunk is not at the version the update is based on"};
  }
  if (update.kind == UpdateKind::kReplace) return Status::Ok();
  const bool is_gone = !newest || newest->tombstone;
  if (update.kind == UpdateKind::kRemove && is_gone) return {Code::kNotFound, "no such chunk"};
  if (update.kind == UpdateKind::kTruncate && !newest) return {Code::kNotFound, "no such chunk"};
  if (!newest) return Status::Ok();
  if (update.version <= newest->version) {
    return {Code::kConflict, "the chunk is at a later version than that of the update"};
  }
  if (update.truncate_version < newest->truncate_version) {
    return {Code::kStaleHandle, "the file was cut since it was opened"};
  }
  if (!is_gone && update.chunk_size != newest->chunk_size) {
    return Invalid("the chunk has another size");
  }
  return Status::Ok();
}

// The record of the result, as far as it is known before data is placed.
Result<Record> ChunkStore::Impl::NextRecord(const Record& base, const Update& update) {
  Record next = base;
  next.version = update.version;
  next.truncate_version = std::max(base.truncate_version, update.truncate_version);
  const auto data_end = update.offset + static_cast<uint32_t>(update.data.size());
  switch (update.kind) {
    case UpdateKind::kWrite:
      next.tombstone = false;
      next.chunk_size = update.chunk_size;
      if (!update.data.empty()) next.length = std::max(base.length, data_end);
      break;
    case UpdateKind::kTruncate:
      next.length = std::min(base.length, update.length);
      Cut(next.pieces, RoundUp(next.length, next.granule()));
      break;
    case UpdateKind::kExtend:
      next.tombstone = false;
      next.chunk_size = update.chunk_size;
      next.length = std::max(base.length, update.length);
      break;
    case UpdateKind::kRemove:
      next.tombstone = true;
      next.length = 0;
      next.pieces.clear();
      break;
    case UpdateKind::kReplace:
      if (update.offset != 0) return Invalid("a replacement begins at offset 0");
      next.tombstone = update.tombstone;
      next.length = data_end;
      next.once = update.replace_once;
      break;
    default:
      return Invalid("unknown kind of update");
  }
  if (Status status = ApplyOnce(update, next); !status.ok()) return status;
  return next;
}

ChunkStore::Impl::Edit ChunkStore::Impl::PlanEdit(const Record& base, const Record& next,
                                                  const Update& update) {
  const uint32_t granule = next.granule();
  Edit edit;
  if (update.kind == UpdateKind::kTruncate) {
    // Bytes behind the cut must read as zeros when the chunk grows again.
    edit.begin = edit.end = RoundDown(next.length, granule);
    edit.data_begin = edit.limit = next.length;
    if (next.length < base.length && base.Find(next.length)) {
      edit.end = RoundUp(next.length, granule);
    }
    return edit;
  }
  if (!HasData(update) || update.data.empty()) return edit;
  edit.begin = RoundDown(update.offset, granule);
  edit.end = RoundUp(update.offset + static_cast<uint32_t>(update.data.size()), granule);
  edit.data_begin = update.offset;
  edit.data = update.data;
  edit.limit = base.length;
  edit.large = edit.end - edit.begin >= SmallWriteLimit(next.chunk_size);
  if (base.pieces.size() + 2 > kMergePieces) {
    edit.begin = 0;
    edit.end = RoundUp(next.length, granule);
    edit.large = edit.merges = true;
  }
  return edit;
}

// Writes what the update changes and completes `next`, whose pieces are acquired on success.
// Folds a chunk that the background does not get at, because it always has an update under way.
Async<Status> ChunkStore::Impl::WriteEdit(ResidentChunk& chunk, Record& base, Record& next,
                                          const Update& update) {
  Placement homes;
  if (update.kind == UpdateKind::kWrite && base.pieces.size() > kFoldUrgentPieces) {
    homes = co_await MoveHome(chunk, base);
    next.pieces = base.pieces;
  }
  Placement placement;
  const Edit edit = PlanEdit(base, next, update);
  Status status = co_await WriteRange(chunk, base, next, update, edit, placement);
  if (status.ok()) {
    for (const Piece& piece : placement.pieces) Overlay(next.pieces, piece);
    next.crcs.resize(next.pieces.empty() ? 0 : next.pieces.back().end() / next.granule());
    Acquire(chunk, next.pieces);
    counters_.user_bytes += edit.data.size();
    if (edit.merges) ++counters_.merged_chunks;
  }
  Release(chunk, placement.pieces);
  Release(chunk, homes.pieces);
  co_return status;
}

// Checksums, places and writes the granules of the edit. `placement` is acquired, also on error.
Async<Status> ChunkStore::Impl::WriteRange(ResidentChunk& chunk, const Record& base, Record& next,
                                           const Update& update, const Edit& edit,
                                           Placement& placement) {
  if (edit.begin >= edit.end) co_return Status::Ok();
  std::vector<Source> sources;
  Status status = co_await Assemble(base, edit, sources);
  if (!status.ok()) co_return status;
  next.crcs.resize(std::max<size_t>(next.crcs.size(), edit.end / next.granule()));
  for (const Source& source : sources) HashSource(source, next);
  if (update.data_crc && DataCrc(edit, next) != *update.data_crc) {
    co_return Status(Code::kCorrupt, "the data of the update does not match its checksum");
  }
  const bool use_reserve = update.use_reserve || update.kind == UpdateKind::kTruncate;
  const PlaceRequest request{base.pieces, chunk.blocks, next.chunk_size,
                             edit.begin,  edit.end,     edit.large};
  placement = co_await Place(chunk, request, use_reserve);
  if (!placement.status.ok()) co_return placement.status;
  co_return co_await WriteData(placement.pieces, sources);
}

// The new bytes of every granule: whole granules of data as the caller holds them, the ragged ends
// in scratch, filled up with the bytes of the base that stay.
Async<Status> ChunkStore::Impl::Assemble(const Record& base, const Edit& edit,
                                         std::vector<Source>& out) {
  const uint32_t granule = base.granule();
  uint32_t direct_begin = RoundUp(edit.data_begin, granule);
  uint32_t direct_end = RoundDown(edit.data_end(), granule);
  if (direct_begin >= direct_end) direct_begin = direct_end = edit.end;

  const auto scratch = [&](uint32_t begin, uint32_t end) -> Source {
    Source source{begin, end, nullptr, std::vector<uint8_t>(end - begin)};
    source.bytes = source.scratch.data();
    return source;
  };
  if (edit.begin < direct_begin) out.push_back(scratch(edit.begin, direct_begin));
  if (direct_begin < direct_end) {
    out.push_back(
        {direct_begin, direct_end, edit.data.data() + (direct_begin - edit.data_begin), {}});
  }
  if (direct_end < edit.end) out.push_back(scratch(direct_end, edit.end));

  for (Source& source : out) {
    if (source.scratch.empty()) continue;
    const uint32_t kept_end = std::min(source.end, edit.limit);
    const bool keeps = source.begin < std::min(edit.data_begin, kept_end) ||
                       std::max(source.begin, edit.data_end()) < kept_end;
    if (keeps) {
      Status status = co_await ReadGranules(base, source.begin, source.end, source.scratch.data());
      if (!status.ok()) co_return status;
      std::fill(source.scratch.begin() + (kept_end - source.begin), source.scratch.end(), 0);
    }
    const uint32_t from = std::max(source.begin, edit.data_begin);
    const uint32_t until = std::min(source.end, edit.data_end());
    if (from < until) {
      std::memcpy(source.scratch.data() + (from - source.begin),
                  edit.data.data() + (from - edit.data_begin), until - from);
    }
  }
  co_return Status::Ok();
}

void ChunkStore::Impl::HashSource(const Source& source, Record& next) {
  const uint32_t granule = next.granule();
  for (uint32_t at = source.begin; at < source.end; at += granule) {
    next.crcs[at / granule] = Crc32c(source.bytes + (at - source.begin), granule);
  }
}

// CRC32C of the caller's data; whole granules are combined, not hashed again.
uint32_t ChunkStore::Impl::DataCrc(const Edit& edit, const Record& next) {
  const uint32_t granule = next.granule();
  const uint32_t direct_begin = RoundUp(edit.data_begin, granule);
  const uint32_t direct_end = RoundDown(edit.data_end(), granule);
  if (direct_begin >= direct_end) return Crc32c(edit.data);
  uint32_t crc = Crc32c(edit.data.first(direct_begin - edit.data_begin));
  const CrcAppender& appender = AppenderFor(granule);
  for (uint32_t at = direct_begin; at < direct_end; at += granule) {
    crc = appender.Append(crc, next.crcs[at / granule]);
  }
  return Crc32c(edit.data.subspan(direct_end - edit.data_begin), crc);
}

Async<Status> ChunkStore::Impl::WriteData(const std::vector<Piece>& pieces,
                                          const std::vector<Source>& sources) {
  Gather writes;
  for (const Piece& piece : pieces) {
    for (const Source& source : sources) {
      const uint32_t from = std::max(piece.offset, source.begin);
      const uint32_t until = std::min(piece.end(), source.end);
      if (from >= until) continue;
      disk_.Write(FileOf(piece), PositionOf(piece, from),
                  {source.bytes + (from - source.begin), until - from}, writes.Add());
    }
    (piece.kind == PieceKind::kLog ? counters_.log_bytes : counters_.block_bytes) += piece.length;
  }
  Status status = co_await writes;
  // Only now: a sync begun before a write has ended need not cover it.
  for (const Piece& piece : pieces) dirty_files_.insert(FileOf(piece));
  co_return status;
}

// Enters a complete record, whose pieces are acquired, as the chunk's newest; returns what makes
// it persistent.
MetaKv::Batch ChunkStore::Impl::Hold(ResidentChunk& chunk, std::shared_ptr<Record> next,
                                     HeldState state) {
  next->ordinal = ++last_ordinal_;
  const RecordKey key{chunk.id, next->ordinal};
  MetaKv::Batch batch;
  batch.push_back({EncodeKey(kVersionSpace, key), EncodeRecord(*next)});
  if (state == HeldState::kPending) batch.push_back({EncodeKey(kPendingSpace, key), ""});
  map_.Insert(chunk.id);
  chunk.held.push_back({std::move(next), state});
  return batch;
}

}  // namespace fs3
