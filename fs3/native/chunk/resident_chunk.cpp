#include "fs3/native/chunk/resident_chunk.h"

#include <algorithm>
#include <cassert>

namespace fs3 {

std::shared_ptr<const Record> ResidentChunk::Committed() const {
  for (const HeldVersion& version : held) {
    if (version.state == HeldState::kCommitted) return version.record;
  }
  return nullptr;
}

std::shared_ptr<const Record> ResidentChunk::Newest() const {
  for (auto it = held.rbegin(); it != held.rend(); ++it) {
    if (it->state != HeldState::kRetired) return it->record;
  }
  return nullptr;
}

std::shared_ptr<const Record> ResidentChunk::WithVersion(Version version) const {
  for (const HeldVersion& candidate : held) {
    if (candidate.state != HeldState::kRetired && candidate.record->version == version) {
      return candidate.record;
    }
  }
  return nullptr;
}

bool ResidentChunk::has_pending() const {
  return std::any_of(held.begin(), held.end(),
                     [](const HeldVersion& v) { return v.state == HeldState::kPending; });
}

void ResidentChunk::AddReferences(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (piece.kind != PieceKind::kBlock) continue;
    auto use = std::find_if(blocks.begin(), blocks.end(),
                            [&](const BlockUse& block) { return block.IsOf(piece); });
    if (use == blocks.end()) {
      blocks.push_back({piece.class_log2, piece.number, piece.offset - piece.position, 0, 0});
      use = std::prev(blocks.end());
    }
    assert(piece.offset - piece.position == use->chunk_begin);
    use->used_end = std::max(use->used_end, piece.position + piece.length);
    ++use->references;
  }
}

std::vector<BlockUse> ResidentChunk::DropReferences(std::span<const Piece> pieces) {
  std::vector<BlockUse> unused;
  for (const Piece& piece : pieces) {
    if (piece.kind != PieceKind::kBlock) continue;
    const auto use = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const BlockUse& block) { return block.IsOf(piece); });
    assert(use != blocks.end());
    if (--use->references > 0) continue;
    unused.push_back(*use);
    blocks.erase(use);
  }
  return unused;
}

bool ResidentChunk::IsReferred(const BlockUse& block, uint32_t position) const {
  for (const HeldVersion& version : held) {
    for (const Piece& piece : version.record->pieces) {
      if (block.IsOf(piece) && position >= piece.position &&
          position - piece.position < piece.length) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace fs3
