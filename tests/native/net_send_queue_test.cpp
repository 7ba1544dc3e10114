#include <gtest/gtest.h>

#include <array>
#include <random>

#include "frame_bytes.h"
#include "fs3/native/net/send_queue.h"

namespace fs3 {
namespace {

using testing_frames::Bytes;
using testing_frames::MakeFrame;
using testing_frames::RandomBytes;

FrameHeader HeaderOf(uint64_t id) {
  FrameHeader header;
  header.method = 0x0400;
  header.request_id = id;
  return header;
}

TEST(SendQueue, SmallFramesLeaveAsOnePieceOfMemory) {
  SendQueue queue;
  for (uint64_t id = 0; id < 64; ++id) queue.Push(HeaderOf(id), Bytes(100, 1), {});
  std::array<iovec, 8> pieces;
  EXPECT_EQ(queue.Gather(pieces, 1 << 20), 1U);
  EXPECT_EQ(pieces[0].iov_len, 64 * (kFrameHeaderSize + 100));
}

// Whatever the sizes and however the sends are cut, the bytes are those of the frames in order, and
// each release comes once, when its last byte has left.
TEST(SendQueue, RandomFramesInRandomCuts) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    SendQueue queue;
    Bytes expected;
    Bytes sent_bytes;
    std::vector<size_t> due;  // stream positions at which a release is due
    size_t released = 0;
    std::vector<Bytes> bulks;
    bulks.reserve(50);
    const auto push = [&](uint64_t id) {
      const Bytes body = RandomBytes(random, random() % 3 == 0 ? random() % 40'000 : random() % 90);
      bulks.push_back(RandomBytes(random, random() % 2 == 0 ? 0 : random() % 9'000));
      Bytes& bulk = bulks.back();
      const Bytes frame = MakeFrame(HeaderOf(id), body, bulk);
      expected.insert(expected.end(), frame.begin(), frame.end());
      due.push_back(expected.size());
      OutBulk out;
      const size_t cut = bulk.empty() ? 0 : random() % bulk.size();
      if (!bulk.empty()) out.pieces = {{bulk.data(), cut}, {bulk.data() + cut, bulk.size() - cut}};
      out.on_released = [&] { ++released; };
      queue.Push(HeaderOf(id), body, std::move(out));
    };
    const auto send_some = [&] {
      std::array<iovec, 5> pieces;
      const size_t count = queue.Gather(pieces, 1 + random() % 30'000);
      size_t offered = 0;
      for (size_t i = 0; i < count; ++i) offered += pieces[i].iov_len;
      size_t left = offered == 0 ? 0 : 1 + random() % offered;
      const size_t taken = left;
      for (size_t i = 0; i < count && left > 0; ++i) {
        const size_t size = std::min(left, pieces[i].iov_len);
        const auto* from = static_cast<uint8_t*>(pieces[i].iov_base);
        sent_bytes.insert(sent_bytes.end(), from, from + size);
        left -= size;
      }
      queue.Release(queue.Advance(taken));
      const size_t through = static_cast<size_t>(std::count_if(
          due.begin(), due.end(), [&](size_t at) { return at <= sent_bytes.size(); }));
      ASSERT_EQ(released, through);
    };
    for (uint64_t id = 0; id < 50; ++id) {
      push(id);
      if (random() % 2 == 0) send_some();
      ASSERT_EQ(queue.queued_bytes(), expected.size() - sent_bytes.size());
    }
    while (!queue.empty()) send_some();
    ASSERT_EQ(sent_bytes, expected);
    EXPECT_EQ(released, 50U);
  }
}

TEST(SendQueue, ClearReleasesWhatWasQueued) {
  SendQueue queue;
  Bytes bulk(100, 1);
  int released = 0;
  for (uint64_t id = 0; id < 3; ++id) {
    OutBulk out;
    out.pieces = {{bulk.data(), bulk.size()}};
    out.on_released = [&] { ++released; };
    queue.Push(HeaderOf(id), {}, std::move(out));
  }
  queue.Release(queue.Clear());
  EXPECT_EQ(released, 3);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace fs3
