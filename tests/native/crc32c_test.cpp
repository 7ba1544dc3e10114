#include "fs3/native/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fs3 {
namespace {

TEST(Crc32c, MatchesThePublishedCheckValue) { EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283U); }

TEST(Crc32c, CombineEqualsOnePassOverRandomSplits) {
  std::mt19937 random(7);
  std::vector<uint8_t> data(70'000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  const uint32_t whole = Crc32c(data.data(), data.size());
  for (int i = 0; i < 50; ++i) {
    const size_t cut = random() % (data.size() + 1);
    const uint32_t a = Crc32c(data.data(), cut);
    const uint32_t b = Crc32c(data.data() + cut, data.size() - cut);
    EXPECT_EQ(Crc32cCombine(a, b, data.size() - cut), whole);
    EXPECT_EQ(Crc32c(data.data() + cut, data.size() - cut, a), whole);
  }
}

}  // namespace
}  // namespace fs3
