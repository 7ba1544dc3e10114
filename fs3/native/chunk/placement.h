// Where the bytes of an update go: the rules, without side effects.
//
//  * Large updates go to fresh blocks, unless they fit the unused tail of a block.
//  * Small ones: granules that continue a block go to its unused tail, granules over existing
//    data go to the small-write log, granules in a hole get a fresh block, sized so that a chunk
//    written from front to back ends with few blocks and no waste.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fs3/native/chunk/resident_chunk.h"

namespace fs3 {

// Updates that rewrite less than this are small: a quarter of the chunk, 1 MiB at most.
constexpr uint32_t SmallWriteLimit(uint32_t chunk_size) {
  return chunk_size / 4 < (1U << 20) ? chunk_size / 4 : 1U << 20;
}

enum class PlaceTarget : uint8_t { kTail, kLog, kFresh };

// Granules [begin, end) of the chunk and their target.
struct PlannedRun {
  uint32_t begin = 0;
  uint32_t end = 0;
  PlaceTarget target = PlaceTarget::kFresh;
  BlockUse tail;  // of kTail
};

// The chunk's newest pieces and blocks, and what of it is rewritten (granule-aligned).
struct PlaceRequest {
  std::span<const Piece> pieces;
  std::span<const BlockUse> blocks;
  uint32_t chunk_size = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool large = false;
};
std::vector<PlannedRun> PlanRuns(const PlaceRequest& request);

// A block to allocate for chunk bytes [begin, end), with byte 0 at chunk_begin.
struct FreshBlock {
  uint8_t class_log2 = 0;
  uint32_t chunk_begin = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};
// At most three blocks, wasting a seventh at most, a smallest block apart.
std::vector<FreshBlock> PlanLargeBlocks(uint32_t begin, uint32_t end);
// One block with room to grow, up to the size of all the chunk's blocks so far.
FreshBlock PlanGrowingBlock(uint32_t begin, uint32_t end, uint32_t chunk_size,
                            std::span<const BlockUse> blocks);

// The block whose place in the chunk covers the offset, or nullptr.
const BlockUse* FindHome(std::span<const BlockUse> blocks, uint32_t offset);

}  // namespace fs3
