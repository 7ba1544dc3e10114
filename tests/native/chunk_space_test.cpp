// The bookkeeping below the store: blocks, log segments, the chunk map, placement, CRC combination.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/chunk/block_allocator.h"
#include "fs3/native/chunk/chunk_map.h"
#include "fs3/native/chunk/granule_crc.h"
#include "fs3/native/chunk/placement.h"
#include "fs3/native/chunk/small_write_log.h"

namespace fs3 {
namespace {

constexpr uint8_t kClass64K = 16;
constexpr uint8_t kClass1M = 20;

TEST(ChunkSpace, BlocksAreHandedOutOnceAndLongestFreeFirst) {
  BlockAllocator blocks;
  EXPECT_FALSE(blocks.Take(kClass64K));
  const BlockRun run = blocks.NextUnbacked(kClass64K, 4 << 16);
  EXPECT_EQ(run.count, 4U);
  blocks.AddBacked(run);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(blocks.Take(kClass64K), i);
  EXPECT_FALSE(blocks.Take(kClass64K));
  blocks.Free(kClass64K, 2);
  blocks.Free(kClass64K, 0);
  EXPECT_EQ(blocks.used_bytes(), 2U << 16);
  EXPECT_EQ(blocks.Take(kClass64K), 2U);
  EXPECT_EQ(blocks.Take(kClass64K), 0U);
}

TEST(ChunkSpace, SpaceGivenUpIsBackedAgain) {
  BlockAllocator blocks;
  blocks.AddBacked(blocks.NextUnbacked(kClass64K, 8 << 16));
  blocks.AddBacked(blocks.NextUnbacked(kClass1M, 1 << 20));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(blocks.Take(kClass64K));
  uint64_t given = 0;
  for (const BlockRun& run : blocks.GiveUpBacked((1 << 20) + 1)) given += run.bytes();
  EXPECT_EQ(given, (1U << 20) + (1U << 16));
  EXPECT_EQ(blocks.backed_bytes(), 7U << 16);
  EXPECT_EQ(blocks.NextUnbacked(kClass64K, 1 << 20).first, 3U);
}

TEST(ChunkSpace, RunsStayWithinAFile) {
  BlockAllocator blocks;
  const uint32_t per_file = 1U << (kBlockFileLog2 - kBlockClassMax);
  blocks.MarkUsed(kBlockClassMax, per_file - 2);
  const BlockRun run{kBlockClassMax, per_file, 1};
  EXPECT_EQ(run.file().number, 1U);
  EXPECT_EQ(run.position(), 0U);
  for (const BlockRun& free : blocks.FreeRuns()) {
    EXPECT_EQ(free.first / per_file, (free.first + free.count - 1) / per_file);
  }
}

TEST(ChunkSpace, LogSegmentsDieWhenNothingRefersToThem) {
  SmallWriteLog log(8192, 4);
  const ChunkId chunk{1, 2, 0, 0};
  EXPECT_FALSE(log.Append(chunk, 4096));
  log.AddSegment();
  ASSERT_TRUE(log.Append(chunk, 4096));
  log.Acquire(0, 4096);
  ASSERT_TRUE(log.Append(chunk, 4096));
  EXPECT_FALSE(log.Append(chunk, 4096));
  log.AddSegment();
  EXPECT_TRUE(log.TakeDead().empty());
  log.AddSegment();
  EXPECT_EQ(log.ChunksToDrain(), std::vector<ChunkId>{chunk});
  EXPECT_EQ(log.TakeDead(), std::vector<uint32_t>{1});
  log.Release(0, 4096);
  EXPECT_EQ(log.TakeDead(), std::vector<uint32_t>{0});
  EXPECT_EQ(log.bytes(), 8192U);
}

TEST(ChunkSpace, MapMatchesAPlainOneInLessThan64BytesPerChunk) {
  ChunkMap map;
  std::map<ChunkId, uint64_t> model;
  std::mt19937_64 random(3);
  for (uint64_t step = 1; step <= 400000; ++step) {
    const ChunkId chunk{random() % 1000, static_cast<uint32_t>(random() % 200), 0, 0};
    if (random() % 4 == 0) {
      map.Erase(chunk);
      model.erase(chunk);
    } else {
      map.Insert(chunk).ordinal = step;
      model[chunk] = step;
    }
  }
  EXPECT_EQ(map.size(), model.size());
  for (const auto& [chunk, ordinal] : model) {
    ASSERT_NE(map.Find(chunk), nullptr);
    ASSERT_EQ(map.Find(chunk)->ordinal, ordinal);
  }
  EXPECT_EQ(map.Find({5000, 0, 0, 0}), nullptr);
  EXPECT_LT(map.memory_bytes() / map.size(), 64U);
}

TEST(ChunkSpace, LargeUpdatesWasteASeventhAtMost) {
  for (uint32_t granules = 16; granules <= 256; ++granules) {
    const uint32_t length = granules * 4096;
    uint64_t allocated = 0;
    uint32_t at = 0;
    const auto blocks = PlanLargeBlocks(0, length);
    EXPECT_LE(blocks.size(), 3U);
    for (const FreshBlock& block : blocks) {
      EXPECT_EQ(block.begin, at);
      at = block.end;
      allocated += 1ULL << block.class_log2;
    }
    EXPECT_EQ(at, length);
    EXPECT_LE(allocated,
              std::max<uint64_t>(length + length / 7 + 4096, length / 65536 * 65536 + 65536));
  }
}

TEST(ChunkSpace, AChunkWrittenFromTheFrontEndsWithFewFullBlocks) {
  std::vector<BlockUse> blocks;
  std::vector<Piece> pieces;
  constexpr uint32_t kChunk = 1U << 20;
  for (uint32_t at = 0; at < kChunk; at += 4096) {
    const auto runs = PlanRuns({pieces, blocks, kChunk, at, at + 4096, false});
    ASSERT_EQ(runs.size(), 1U);
    ASSERT_NE(runs[0].target, PlaceTarget::kLog);
    if (runs[0].target == PlaceTarget::kFresh) {
      const FreshBlock fresh = PlanGrowingBlock(at, at + 4096, kChunk, blocks);
      const auto number = static_cast<uint32_t>(blocks.size());
      blocks.push_back({fresh.class_log2, number, fresh.chunk_begin, 0, 1});
    }
    blocks.back().used_end = at + 4096 - blocks.back().chunk_begin;
  }
  EXPECT_EQ(blocks.size(), 5U);  // 64K, 64K, 128K, 256K, 512K
  uint64_t allocated = 0;
  for (const BlockUse& block : blocks) allocated += block.size();
  EXPECT_EQ(allocated, kChunk);
}

TEST(ChunkSpace, CrcsCombineByTable) {
  std::mt19937 random(4);
  for (uint32_t granule = 4096; granule <= 262144; granule *= 2) {
    std::vector<uint8_t> bytes(3 * granule);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    const CrcAppender& appender = AppenderFor(granule);
    uint32_t crc = 0;
    for (int i = 0; i < 3; ++i) {
      crc = appender.Append(crc, Crc32c(bytes.data() + i * granule, granule));
    }
    EXPECT_EQ(crc, Crc32c(bytes));
    EXPECT_EQ(appender.zeros(), Crc32c(std::vector<uint8_t>(granule)));
  }
}

}  // namespace
}  // namespace fs3
