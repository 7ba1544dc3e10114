// Bodies of chunk operations and chain messages: what fits is taken, anything else is refused.
#include "fs3/native/frame/chunk_ops.h"

#include <gtest/gtest.h>

#include <random>

#include "fs3/native/frame/replication.h"

namespace fs3 {
namespace {

WriteOp GoodWrite() {
  WriteOp op;
  op.chunk = ChunkId{1, 2, 0, 0}.Encode();
  op.length = 100;
  op.client = 7;
  op.sequence = 1;
  op.chunk_size = 1U << 20;
  return op;
}

TEST(ChunkOps, ComeBackAsTheyWere) {
  std::vector<ReadOp> ops(3);
  ops[1].chunk = ChunkId{1, 2, 3, 4}.Encode();
  ops[1].offset = 5;
  ops[2].chain_version = uint64_t{1} << 60;
  const auto body = EncodeOps(std::span<const ReadOp>(ops));
  EXPECT_EQ(body.size(), 8 + 3 * sizeof(ReadOp));
  const auto decoded = DecodeOps<ReadOp>(body);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(ChunkId::Decode(decoded.value()[1].chunk.data()), (ChunkId{1, 2, 3, 4}));
  EXPECT_EQ(decoded.value()[1].offset, 5U);
  EXPECT_EQ(decoded.value()[2].chain_version, uint64_t{1} << 60);
}

TEST(ChunkOps, OfAnotherSizeOrNumberAreRefused) {
  const std::vector<ReadOp> ops(2);
  auto body = EncodeOps(std::span<const ReadOp>(ops));
  EXPECT_FALSE(DecodeOps<WriteOp>(body).ok());
  body.pop_back();
  EXPECT_FALSE(DecodeOps<ReadOp>(body).ok());
  EXPECT_FALSE(DecodeOps<ReadOp>({}).ok());
  const std::vector<ReadOp> many(kOpsPerFrameMax + 1);
  EXPECT_FALSE(DecodeOps<ReadOp>(EncodeOps(std::span<const ReadOp>(many))).ok());
}

TEST(ChunkOps, WritesAreChecked) {
  const auto check = [](const WriteOp& op, uint64_t bulk = 100) {
    return CheckWrites({&op, 1}, bulk).ok();
  };
  EXPECT_TRUE(check(GoodWrite()));
  EXPECT_FALSE(check(GoodWrite(), 101)) << "bulk of another length";
  const std::vector<void (*)(WriteOp&)> faults = {
      [](WriteOp& op) { op.reserved = 1; },
      [](WriteOp& op) { op.flags = 1; },
      [](WriteOp& op) { op.chunk_size = 3U << 19; },
      [](WriteOp& op) { op.chunk_size = 32U << 10; },
      [](WriteOp& op) { op.chunk_size = 128U << 20; },
      [](WriteOp& op) { op.offset = (1U << 20) - 99; },
      [](WriteOp& op) { op.offset = UINT32_MAX; },
      [](WriteOp& op) { op.client = 0; },
      [](WriteOp& op) { op.acknowledged_through = op.sequence; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    WriteOp op = GoodWrite();
    faults[i](op);
    EXPECT_FALSE(check(op)) << "fault " << i;
  }
}

TEST(ChunkOps, ReadsAreChecked) {
  ReadOp op;
  op.length = 4096;
  EXPECT_TRUE(CheckReads({&op, 1}).ok());
  op.offset = UINT32_MAX;
  EXPECT_FALSE(CheckReads({&op, 1}).ok());
  std::vector<ReadOp> many(2);
  for (ReadOp& each : many) each.length = 64U << 20;
  EXPECT_FALSE(CheckReads(many).ok()) << "more than a frame may carry";
}

ForwardItem GoodForward() {
  ForwardItem item;
  item.op.kind = 4;
  item.op.chunk_size = 1U << 20;
  item.op.length = item.op.data_length = 10;
  item.records.resize(3);
  item.records[1].sequence = 9;
  item.expired_clients = {1, 2};
  return item;
}

TEST(Replication, ForwardComesBackAsItWas) {
  ChainHeader header;
  header.target = 5;
  header.chain_version = 6;
  const std::vector<ForwardItem> items = {GoodForward(), GoodForward()};
  const auto decoded = DecodeForward(EncodeForward(header, items), 20);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(decoded.value().header.target, 5U);
  ASSERT_EQ(decoded.value().items.size(), 2U);
  EXPECT_EQ(decoded.value().items[1].records[1].sequence, 9U);
  EXPECT_EQ(decoded.value().items[1].expired_clients, (std::vector<uint64_t>{1, 2}));
}

TEST(Replication, ForwardIsChecked) {
  const std::vector<void (*)(ForwardItem&)> faults = {
      [](ForwardItem& item) { item.op.kind = 0; },
      [](ForwardItem& item) { item.op.kind = 5; },
      [](ForwardItem& item) { item.op.flags = 0x80; },
      [](ForwardItem& item) { item.op.chunk_size = 5; },
      [](ForwardItem& item) { item.op.length = 11; },
      [](ForwardItem& item) { item.op.offset = (1U << 20) - 9; },
      [](ForwardItem& item) { item.op.offset = UINT32_MAX; },
      [](ForwardItem& item) { item.records.resize(65); },
      [](ForwardItem& item) { item.expired_clients.resize(65); },
      [](ForwardItem& item) { item.op.kind = 1; },  // with records
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    std::vector<ForwardItem> items = {GoodForward()};
    faults[i](items[0]);
    EXPECT_FALSE(DecodeForward(EncodeForward({}, items), 10).ok()) << "fault " << i;
  }
}

// Hostile bytes are refused, never believed; the sanitizers watch.
TEST(Replication, AnyBytesAreTakenOrRefused) {
  std::mt19937 random(1);
  const std::vector<ForwardItem> items = {GoodForward(), GoodForward()};
  const auto good = EncodeForward({}, items);
  for (int i = 0; i < 20000; ++i) {
    auto body = good;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
      body[random() % body.size()] = static_cast<uint8_t>(random());
    }
    body.resize(random() % 4 == 0 ? random() % body.size() : body.size());
    const auto decoded = DecodeForward(body, 20);
    if (decoded.ok()) {
      EXPECT_EQ(decoded.value().items.size(), decoded.value().header.count);
    }
    (void)DecodeChainOps<ChunkVersion>(body);
    (void)DecodeOps<ReadOp>(body);
    (void)DecodeOps<WriteOp>(body);
  }
}

}  // namespace
}  // namespace fs3
