// The receiving half without any IO: bytes in, frames out.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "frame_bytes.h"
#include "fs3/native/base/crc32c.h"
#include "fs3/native/net/receiver.h"

namespace fs3 {
namespace {

using testing_frames::Bytes;
using testing_frames::MakeFrame;
using testing_frames::RandomBytes;

struct Received {
  FrameHeader header;
  Bytes body;
  Bytes bulk;
};

// Keeps what it is given, in buffers or in pieces of its own.
class Keeper : public FrameSink {
 public:
  BulkTarget OnBulk(const FrameHeader& header, std::span<const uint8_t>) override {
    if (discards) return BulkTarget::Discard();
    if (piece_bytes == 0) return BulkTarget::Into(Buffer::Allocate(header.bulk_length));
    own.assign(header.bulk_length, 0);
    std::vector<iovec> pieces;
    for (size_t at = 0; at < own.size(); at += piece_bytes) {
      pieces.push_back({own.data() + at, std::min(piece_bytes, own.size() - at)});
    }
    BulkTarget target = BulkTarget::Into(std::move(pieces));
    target.verify = verifies;
    return target;
  }

  void OnFrame(Frame& frame) override {
    Bytes bulk = std::exchange(own, {});
    if (frame.bulk) bulk.assign(frame.bulk.data(), frame.bulk.data() + frame.bulk.size());
    frames.push_back({frame.header, {frame.body.begin(), frame.body.end()}, std::move(bulk)});
    if (receiver != nullptr) receiver->Pause();
  }

  std::vector<Received> frames;
  Bytes own;
  size_t piece_bytes = 0;
  bool verifies = true;
  bool discards = false;
  Receiver* receiver = nullptr;  // paused after each frame when set
};

// Feeds `bytes` in steps of at most `step` bytes, as the receiver asks for them.
Malformed Feed(Receiver& receiver, std::span<const uint8_t> bytes, size_t step) {
  while (!bytes.empty()) {
    size_t given = 0;
    for (const iovec& target : receiver.Targets()) {
      const size_t size = std::min({target.iov_len, bytes.size() - given, step - given});
      std::memcpy(target.iov_base, bytes.data() + given, size);
      given += size;
    }
    EXPECT_GT(given, 0U);
    bytes = bytes.subspan(given);
    if (const Malformed bad = receiver.Advance(given); bad != Malformed::kNone) return bad;
  }
  return Malformed::kNone;
}

class Chopped : public testing::TestWithParam<size_t> {};

TEST_P(Chopped, FramesOfEverySizeArriveWhole) {
  std::mt19937 random(3);
  Bytes stream;
  std::vector<std::pair<Bytes, Bytes>> sent;
  const size_t sizes[] = {0, 1, 47, 100, 4096, Receiver::kStagedBodyMax, 70'000};
  for (const size_t body_size : sizes) {
    for (const size_t bulk_size : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'000}}) {
      sent.emplace_back(RandomBytes(random, body_size), RandomBytes(random, bulk_size));
      const Bytes frame = MakeFrame(0x0400, sent.size(), sent.back().first, sent.back().second);
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
  }
  for (const size_t piece_bytes : {size_t{0}, size_t{1000}, size_t{50'000}}) {
    Keeper keeper;
    keeper.piece_bytes = piece_bytes;
    Receiver receiver(keeper);
    ASSERT_EQ(Feed(receiver, stream, GetParam()), Malformed::kNone);
    EXPECT_FALSE(receiver.inside_frame());
    ASSERT_EQ(keeper.frames.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(keeper.frames[i].header.request_id, i + 1);
      EXPECT_EQ(keeper.frames[i].body, sent[i].first);
      EXPECT_EQ(keeper.frames[i].bulk, sent[i].second);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, Chopped, testing::Values(1, 13, 48, 4096, 65'536, 10'000'000));

TEST(Receiver, PausedItKeepsWhatIsHereAndResumesWithIt) {
  Keeper keeper;
  Receiver receiver(keeper);
  keeper.receiver = &receiver;
  Bytes stream;
  for (uint64_t id = 1; id <= 3; ++id) {
    const Bytes frame = MakeFrame(0x0400, id, {1, 2, 3}, {});
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  ASSERT_EQ(Feed(receiver, stream, stream.size()), Malformed::kNone);
  for (size_t seen = 1; seen <= 3; ++seen) {
    EXPECT_EQ(keeper.frames.size(), seen);
    EXPECT_TRUE(receiver.is_paused());
    EXPECT_EQ(receiver.Resume(), Malformed::kNone);
  }
  EXPECT_EQ(keeper.frames.size(), 3U);
}

TEST(Receiver, DiscardedBulkLeavesTheStreamIntact) {
  Keeper keeper;
  keeper.discards = true;
  Receiver receiver(keeper);
  Bytes stream = MakeFrame(0x0100, 1, {9}, Bytes(300'000, 7));
  const Bytes next = MakeFrame(0x0100, 2, {8}, {});
  stream.insert(stream.end(), next.begin(), next.end());
  ASSERT_EQ(Feed(receiver, stream, 10'000), Malformed::kNone);
  ASSERT_EQ(keeper.frames.size(), 2U);
  EXPECT_TRUE(keeper.frames[0].bulk.empty());
  EXPECT_EQ(keeper.frames[1].header.request_id, 2U);
}

TEST(Receiver, FlippedBulkIsSeenUnlessItsOwnerChecksIt) {
  Bytes frame = MakeFrame(0x0100, 1, {}, Bytes(10'000, 7));
  frame.back() ^= 1;
  for (const bool verifies : {true, false}) {
    Keeper keeper;
    keeper.piece_bytes = 4096;
    keeper.verifies = verifies;
    Receiver receiver(keeper);
    EXPECT_EQ(Feed(receiver, frame, 1000), verifies ? Malformed::kBulkCrc : Malformed::kNone);
    EXPECT_EQ(keeper.frames.size(), verifies ? 0U : 1U);
  }
}

TEST(Receiver, BulkBehindASmallHeaderIsMostlyReceivedInPlace) {
  Keeper keeper;
  Receiver receiver(keeper);
  const Bytes frame = MakeFrame(0x0100, 1, {}, Bytes(1 << 20, 7));
  ASSERT_EQ(Feed(receiver, std::span(frame).first(kFrameHeaderSize), 100), Malformed::kNone);
  const auto targets = receiver.Targets();
  ASSERT_EQ(targets.size(), 2U);
  EXPECT_EQ(targets[0].iov_len, size_t{1} << 20);
  EXPECT_EQ(targets[1].iov_len, Receiver::kBehindBulkBytes);
}

}  // namespace
}  // namespace fs3
