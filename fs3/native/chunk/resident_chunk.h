// ResidentChunk: the versions of one chunk while they are in memory, and the blocks they refer to.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fs3/native/chunk/async.h"
#include "fs3/native/chunk/record.h"

namespace fs3 {

enum class HeldState : uint8_t {
  kRetired,    // replaced or abandoned; its space is kept until a flush has made that durable
  kCommitted,  // at most one
  kPending,
};

struct HeldVersion {
  std::shared_ptr<const Record> record;
  HeldState state = HeldState::kPending;
};

// A block some held version refers to. Its byte 0 belongs at `chunk_begin` of the chunk.
struct BlockUse {
  uint8_t class_log2 = 0;
  uint32_t number = 0;
  uint32_t chunk_begin = 0;
  uint32_t used_end = 0;    // bytes in the block; what lies behind was never referred to
  uint32_t references = 0;  // pieces of held versions

  uint32_t size() const { return 1U << class_log2; }
  bool Covers(uint32_t offset) const {
    return offset >= chunk_begin && offset - chunk_begin < size();
  }
  bool IsOf(const Piece& piece) const {
    return piece.kind == PieceKind::kBlock && piece.class_log2 == class_log2 &&
           piece.number == number;
  }
};

class ResidentChunk {
 public:
  ResidentChunk(const ChunkId& chunk, ResumeQueue& queue) : id(chunk), turn(queue) {}

  // Null where there is none.
  std::shared_ptr<const Record> Committed() const;
  std::shared_ptr<const Record> Newest() const;  // the last pending one, else the committed one
  std::shared_ptr<const Record> WithVersion(Version version) const;
  bool has_pending() const;
  // Nothing but the committed version, which the metadata can bring back.
  bool restorable() const { return held.size() == 1 && held[0].state == HeldState::kCommitted; }

  void AddReferences(std::span<const Piece> pieces);
  // Blocks left without references, which are forgotten here.
  std::vector<BlockUse> DropReferences(std::span<const Piece> pieces);
  // Whether a held version refers to the byte of the block at `position`.
  bool IsReferred(const BlockUse& block, uint32_t position) const;

  const ChunkId id;
  Turn turn;  // held while an update reads, places and writes its data
  bool loaded = false;
  uint32_t users = 0;             // operations at work on it
  std::vector<HeldVersion> held;  // in the order they were made
  std::vector<BlockUse> blocks;

  // Place in the list of evictable chunks, kept by the store.
  std::optional<std::list<ResidentChunk*>::iterator> idle_at;
  size_t idle_bytes = 0;
};

}  // namespace fs3
