#include "fs3/native/chunk/placement.h"

#include <algorithm>
#include <bit>

namespace fs3 {
namespace {

constexpr uint32_t kBlockMin = 1U << kBlockClassMin;
constexpr int kLargeBlocksMax = 3;

uint8_t ClassFor(uint32_t bytes) {
  return static_cast<uint8_t>(std::countr_zero(std::bit_ceil(std::max(bytes, kBlockMin))));
}

bool IsMapped(std::span<const Piece> pieces, uint32_t offset) {
  return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return piece.offset <= offset && offset < piece.end();
  });
}

const BlockUse* FindTail(std::span<const BlockUse> blocks, uint32_t offset) {
  for (const BlockUse& block : blocks) {
    if (block.Covers(offset) && offset - block.chunk_begin >= block.used_end) return &block;
  }
  return nullptr;
}

// A run of one granule.
PlannedRun PlanGranule(const PlaceRequest& request, uint32_t begin, uint32_t end) {
  if (const BlockUse* tail = FindTail(request.blocks, begin); tail != nullptr) {
    return {begin, end, PlaceTarget::kTail, *tail};
  }
  const bool over_data = IsMapped(request.pieces, begin) || FindHome(request.blocks, begin);
  return {begin, end, over_data ? PlaceTarget::kLog : PlaceTarget::kFresh, {}};
}

bool Joins(const PlannedRun& left, const PlannedRun& right) {
  return left.target == right.target &&
         (left.target != PlaceTarget::kTail ||
          (left.tail.number == right.tail.number && left.tail.class_log2 == right.tail.class_log2));
}

}  // namespace

const BlockUse* FindHome(std::span<const BlockUse> blocks, uint32_t offset) {
  for (const BlockUse& block : blocks) {
    if (block.Covers(offset)) return &block;
  }
  return nullptr;
}

std::vector<PlannedRun> PlanRuns(const PlaceRequest& request) {
  if (request.large) {
    const BlockUse* tail = FindTail(request.blocks, request.begin);
    if (tail != nullptr && tail->Covers(request.end - 1)) {
      return {{request.begin, request.end, PlaceTarget::kTail, *tail}};
    }
    return {{request.begin, request.end, PlaceTarget::kFresh, {}}};
  }
  const uint32_t granule = GranuleSize(request.chunk_size);
  std::vector<PlannedRun> runs;
  for (uint32_t at = request.begin; at < request.end; at += granule) {
    const PlannedRun next = PlanGranule(request, at, at + granule);
    if (!runs.empty() && Joins(runs.back(), next)) {
      runs.back().end = next.end;
    } else {
      runs.push_back(next);
    }
  }
  return runs;
}

std::vector<FreshBlock> PlanLargeBlocks(uint32_t begin, uint32_t end) {
  std::vector<FreshBlock> out;
  while (begin < end) {
    const uint32_t rest = end - begin;
    const bool is_last = out.size() + 1 == kLargeBlocksMax;
    const uint8_t class_log2 = is_last ? ClassFor(rest) : ClassFor(std::bit_floor(rest));
    const uint32_t part_end = std::min(end, begin + (1U << class_log2));
    out.push_back({class_log2, begin, begin, part_end});
    begin = part_end;
  }
  return out;
}

FreshBlock PlanGrowingBlock(uint32_t begin, uint32_t end, uint32_t chunk_size,
                            std::span<const BlockUse> blocks) {
  uint32_t allocated = 0;
  for (const BlockUse& block : blocks) allocated += block.size();
  const uint32_t chunk_begin = begin / kBlockMin * kBlockMin;
  uint8_t class_log2 = ClassFor(end - chunk_begin);
  // Doubled only where the larger block stays aligned, so that blocks of a chunk written from
  // front to back (64K, 64K, 128K, 256K, ...) fit together without gaps.
  for (uint32_t twice = 2U << class_log2;
       twice <= allocated && (chunk_begin & (twice - 1)) == 0 && chunk_begin + twice <= chunk_size;
       twice *= 2) {
    ++class_log2;
  }
  return {class_log2, chunk_begin, begin, end};
}

}  // namespace fs3
