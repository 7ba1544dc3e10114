// The metadata record of one chunk version, and the keys under which records lie.
// Byte layout: docs/design/formats.md, "chunk metadata record".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/chunk/chunk_store.h"
#include "fs3/native/chunk/disk.h"

namespace fs3 {

constexpr uint8_t kBlockClassMin = 16;  // 64 KiB
constexpr uint8_t kBlockClassMax = 26;  // 64 MiB
constexpr int kBlockFileLog2 = 34;      // 16 GiB of blocks per file, at every class

enum class PieceKind : uint8_t { kBlock = 1, kLog = 2 };

// A granule-aligned run of a chunk and where its bytes lie.
struct Piece {
  uint32_t offset = 0;  // in the chunk, bytes
  uint32_t length = 0;  // bytes
  PieceKind kind = PieceKind::kBlock;
  uint8_t class_log2 = 0;  // of kBlock: size of the block
  uint32_t number = 0;     // of the block within its class, or of the log segment
  uint32_t position = 0;   // of the first byte in the block or segment

  uint32_t end() const { return offset + length; }
  bool SameBlock(const Piece& other) const {
    return kind == other.kind && class_log2 == other.class_log2 && number == other.number;
  }
  bool operator==(const Piece&) const = default;
};

// File and byte offset of `offset`, which lies in the piece.
FileId FileOf(const Piece& piece);
uint64_t PositionOf(const Piece& piece, uint32_t offset);

struct Record {
  uint64_t ordinal = 0;  // part of the key: counts the records this store has written
  Version version;
  uint32_t chunk_size = 0;
  uint32_t length = 0;
  uint64_t truncate_version = 0;
  bool tombstone = false;
  std::vector<OnceRecord> once;
  std::vector<Piece> pieces;   // by offset, disjoint; what none covers is a hole of zeros
  std::vector<uint32_t> crcs;  // by granule, up to the end of the last piece; 0 in holes

  uint32_t granule() const { return GranuleSize(chunk_size); }
  VersionInfo info() const { return {version, length, truncate_version, tombstone}; }
  size_t memory_bytes() const;
  // The piece that covers a chunk offset, or nullptr.
  const Piece* Find(uint32_t offset) const;
};

// Puts a piece over what lies in its range, joining neighbours that continue each other.
void Overlay(std::vector<Piece>& pieces, const Piece& piece);
// Drops what lies at or beyond `end` (granule-aligned).
void Cut(std::vector<Piece>& pieces, uint32_t end);

std::string EncodeRecord(const Record& record);
// kCorrupt, also when pieces overlap or reach beyond the chunk. `ordinal` is the caller's.
Result<Record> DecodeRecord(std::string_view bytes);

// Key spaces, by first byte: records of versions, marks of pending ones, the store's own state.
constexpr char kVersionSpace = 'V';
constexpr char kPendingSpace = 'P';
constexpr char kStoreSpace = 'S';

struct RecordKey {
  ChunkId chunk;
  uint64_t ordinal = 0;
  auto operator<=>(const RecordKey&) const = default;
};
std::string EncodeKey(char space, const RecordKey& key);
Result<RecordKey> DecodeKey(std::string_view bytes);

// What the store remembers about itself, under the key "S".
struct StoreState {
  uint64_t durable_ordinal = 0;  // records up to it, and their data, survive power loss
  std::string boot_id;           // of the host when this was written
};
std::string EncodeState(const StoreState& state);
Result<StoreState> DecodeState(std::string_view bytes);

}  // namespace fs3
