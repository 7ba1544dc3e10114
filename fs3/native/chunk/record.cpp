#include "fs3/native/chunk/record.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fs3 {
namespace {

constexpr uint8_t kRecordFormat = 1;
constexpr uint8_t kStateFormat = 1;
constexpr uint8_t kFlagTombstone = 1;
constexpr size_t kHeaderSize = 40;
constexpr size_t kOnceSize = 40;
constexpr size_t kPieceSize = 20;
constexpr size_t kKeySize = 1 + ChunkId::kSize + 8;

static_assert(std::endian::native == std::endian::little, "records are written in memory order");

class Writer {
 public:
  explicit Writer(size_t size) { out_.reserve(size); }
  template <typename T>
  void Put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutBytes(const void* data, size_t size) {
    out_.append(static_cast<const char*>(data), size);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads past the end give zeros and are remembered, so that a decoder checks once.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  T Get() {
    T value{};
    if (Take(sizeof value)) std::memcpy(&value, taken_, sizeof value);
    return value;
  }
  void GetBytes(void* to, size_t size) {
    if (Take(size) && size > 0) std::memcpy(to, taken_, size);
  }
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  bool Take(size_t size) {
    if (rest_.size() < size) {
      ok_ = false;
      rest_ = {};
      return false;
    }
    taken_ = rest_.data();
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  const char* taken_ = nullptr;
  bool ok_ = true;
};

Status Malformed(const char* what) {
  return {Code::kCorrupt, std::string("chunk record: ") + what};
}

bool Continues(const Piece& left, const Piece& right) {
  return left.end() == right.offset && left.SameBlock(right) &&
         left.position + left.length == right.position;
}

Piece Part(const Piece& piece, uint32_t begin, uint32_t end) {
  Piece part = piece;
  part.position += begin - piece.offset;
  part.offset = begin;
  part.length = end - begin;
  return part;
}

Status CheckPiece(const Piece& piece, uint32_t begin_min, const Record& record) {
  const uint32_t granule = record.granule();
  if (piece.offset < begin_min) return Malformed("pieces overlap");
  if (piece.length == 0 || uint64_t{piece.offset} + piece.length > record.chunk_size) {
    return Malformed("a piece reaches beyond the chunk");
  }
  if ((piece.offset | piece.length | piece.position) % granule != 0) {
    return Malformed("a piece is not aligned");
  }
  if (piece.kind == PieceKind::kLog) return Status::Ok();
  if (piece.kind != PieceKind::kBlock) return Malformed("unknown kind of piece");
  if (piece.class_log2 < kBlockClassMin || piece.class_log2 > kBlockClassMax ||
      uint64_t{piece.position} + piece.length > uint64_t{1} << piece.class_log2) {
    return Malformed("a piece reaches beyond its block");
  }
  return Status::Ok();
}

}  // namespace

std::string FileName(const FileId& file) {
  if (file.kind == FileId::Kind::kLog) return "log/" + std::to_string(file.number);
  return "blocks/" + std::to_string(uint64_t{1} << file.class_log2) + "-" +
         std::to_string(file.number);
}

FileId FileOf(const Piece& piece) {
  if (piece.kind == PieceKind::kLog) return {FileId::Kind::kLog, 0, piece.number};
  return {FileId::Kind::kBlock, piece.class_log2,
          piece.number >> (kBlockFileLog2 - piece.class_log2)};
}

uint64_t PositionOf(const Piece& piece, uint32_t offset) {
  const uint64_t in_piece = uint64_t{piece.position} + (offset - piece.offset);
  if (piece.kind == PieceKind::kLog) return in_piece;
  const uint32_t index = piece.number & ((1U << (kBlockFileLog2 - piece.class_log2)) - 1);
  return (uint64_t{index} << piece.class_log2) + in_piece;
}

size_t Record::memory_bytes() const {
  return sizeof *this + once.capacity() * sizeof(OnceRecord) + pieces.capacity() * sizeof(Piece) +
         crcs.capacity() * sizeof(uint32_t);
}

const Piece* Record::Find(uint32_t offset) const {
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                      [](uint32_t at, const Piece& p) { return at < p.offset; });
  if (after == pieces.begin()) return nullptr;
  const Piece& piece = *std::prev(after);
  return offset < piece.end() ? &piece : nullptr;
}

void Overlay(std::vector<Piece>& pieces, const Piece& piece) {
  std::vector<Piece> out;
  out.reserve(pieces.size() + 2);
  const auto append = [&out](const Piece& next) {
    if (!out.empty() && Continues(out.back(), next)) {
      out.back().length += next.length;
    } else {
      out.push_back(next);
    }
  };
  bool placed = false;
  for (const Piece& old : pieces) {
    if (old.offset < piece.offset) append(Part(old, old.offset, std::min(old.end(), piece.offset)));
    if (!placed && old.end() > piece.offset) {
      append(piece);
      placed = true;
    }
    if (old.end() > piece.end()) append(Part(old, std::max(old.offset, piece.end()), old.end()));
  }
  if (!placed) append(piece);
  pieces = std::move(out);
}

void Cut(std::vector<Piece>& pieces, uint32_t end) {
  while (!pieces.empty() && pieces.back().offset >= end) pieces.pop_back();
  if (!pieces.empty() && pieces.back().end() > end) {
    pieces.back().length = end - pieces.back().offset;
  }
}

std::string EncodeRecord(const Record& record) {
  Writer out(kHeaderSize + record.once.size() * kOnceSize + record.pieces.size() * kPieceSize +
             record.crcs.size() * 4);
  out.Put<uint8_t>(kRecordFormat);
  out.Put<uint8_t>(record.tombstone ? kFlagTombstone : 0);
  out.Put<uint8_t>(static_cast<uint8_t>(std::countr_zero(record.chunk_size)));
  out.Put<uint8_t>(0);
  out.Put<uint32_t>(record.length);
  out.Put<uint64_t>(record.version.chain_version);
  out.Put<uint64_t>(record.version.sequence);
  out.Put<uint64_t>(record.truncate_version);
  out.Put<uint32_t>(static_cast<uint32_t>(record.once.size()));
  out.Put<uint32_t>(static_cast<uint32_t>(record.pieces.size()));
  for (const OnceRecord& once : record.once) {
    out.Put<uint64_t>(once.client);
    out.Put<uint64_t>(once.sequence);
    out.Put<uint64_t>(once.version.chain_version);
    out.Put<uint64_t>(once.version.sequence);
    out.Put<uint32_t>(once.channel);
    out.Put<uint32_t>(once.length);
  }
  const uint32_t granule = record.granule();
  for (const Piece& piece : record.pieces) {
    out.Put<uint32_t>(piece.offset);
    out.Put<uint32_t>(piece.length);
    out.Put<uint8_t>(static_cast<uint8_t>(piece.kind));
    out.Put<uint8_t>(piece.class_log2);
    out.Put<uint16_t>(0);
    out.Put<uint32_t>(piece.number);
    out.Put<uint32_t>(piece.position);
    out.PutBytes(&record.crcs[piece.offset / granule], size_t{piece.length / granule} * 4);
  }
  return out.Take();
}

Result<Record> DecodeRecord(std::string_view bytes) {
  Reader in(bytes);
  Record record;
  if (in.Get<uint8_t>() != kRecordFormat) return Malformed("unknown format");
  record.tombstone = (in.Get<uint8_t>() & kFlagTombstone) != 0;
  const uint8_t size_log2 = in.Get<uint8_t>();
  if (size_log2 < kBlockClassMin || size_log2 > kBlockClassMax) return Malformed("chunk size");
  record.chunk_size = 1U << size_log2;
  in.Get<uint8_t>();
  record.length = in.Get<uint32_t>();
  if (record.length > record.chunk_size) return Malformed("length beyond the chunk");
  record.version.chain_version = in.Get<uint64_t>();
  record.version.sequence = in.Get<uint64_t>();
  record.truncate_version = in.Get<uint64_t>();
  const uint32_t once_count = in.Get<uint32_t>();
  const uint32_t piece_count = in.Get<uint32_t>();
  const uint32_t granule = record.granule();
  if (once_count > kOnceRecordsMax || piece_count > record.chunk_size / granule) {
    return Malformed("counts");
  }
  record.once.resize(once_count);
  for (OnceRecord& once : record.once) {
    once.client = in.Get<uint64_t>();
    once.sequence = in.Get<uint64_t>();
    once.version.chain_version = in.Get<uint64_t>();
    once.version.sequence = in.Get<uint64_t>();
    once.channel = in.Get<uint32_t>();
    once.length = in.Get<uint32_t>();
  }
  record.pieces.resize(piece_count);
  uint32_t end = 0;
  for (Piece& piece : record.pieces) {
    piece.offset = in.Get<uint32_t>();
    piece.length = in.Get<uint32_t>();
    piece.kind = static_cast<PieceKind>(in.Get<uint8_t>());
    piece.class_log2 = in.Get<uint8_t>();
    in.Get<uint16_t>();
    piece.number = in.Get<uint32_t>();
    piece.position = in.Get<uint32_t>();
    if (!in.ok()) return Malformed("cut short");
    if (Status status = CheckPiece(piece, end, record); !status.ok()) return status;
    end = piece.end();
    record.crcs.resize(end / granule);
    in.GetBytes(&record.crcs[piece.offset / granule], size_t{piece.length / granule} * 4);
  }
  if (!in.at_end()) return Malformed("length of the record");
  return record;
}

std::string EncodeKey(char space, const RecordKey& key) {
  std::string out;
  out.reserve(kKeySize);
  out.push_back(space);
  const auto chunk = key.chunk.Encode();
  out.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
  for (int shift = 56; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(key.ordinal >> shift));
  }
  return out;
}

Result<RecordKey> DecodeKey(std::string_view bytes) {
  if (bytes.size() != kKeySize) return Status(Code::kCorrupt, "chunk record: key size");
  const auto* in = reinterpret_cast<const uint8_t*>(bytes.data()) + 1;
  RecordKey key{ChunkId::Decode(in), 0};
  for (size_t i = 0; i < 8; ++i) key.ordinal = key.ordinal << 8 | in[ChunkId::kSize + i];
  return key;
}

std::string EncodeState(const StoreState& state) {
  Writer out(9 + state.boot_id.size());
  out.Put<uint8_t>(kStateFormat);
  out.Put<uint64_t>(state.durable_ordinal);
  out.PutBytes(state.boot_id.data(), state.boot_id.size());
  return out.Take();
}

Result<StoreState> DecodeState(std::string_view bytes) {
  Reader in(bytes);
  StoreState state;
  if (in.Get<uint8_t>() != kStateFormat) return Malformed("unknown format of the store");
  state.durable_ordinal = in.Get<uint64_t>();
  if (!in.ok()) return Malformed("state of the store");
  state.boot_id = in.rest();
  return state;
}

}  // namespace fs3
