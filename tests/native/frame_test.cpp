#include "fs3/native/frame/frame.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/frame/hello.h"

namespace fs3 {
namespace {

using Block = std::map<std::string, std::string>;
using Bytes = std::vector<uint8_t>;

std::vector<Block> GoldenBlocks(const std::string& kind) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../golden/frames.txt";
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::vector<Block> blocks(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    if (line.empty()) {
      blocks.emplace_back();
      continue;
    }
    const size_t space = line.find(' ');
    blocks.back()[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
  }
  std::erase_if(blocks, [&](const Block& block) { return !block.contains(kind); });
  return blocks;
}

Bytes FromHex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::span<const uint8_t, kFrameHeaderSize> HeaderOf(const Bytes& bytes) {
  return std::span<const uint8_t, kFrameHeaderSize>(bytes.data(), kFrameHeaderSize);
}

FrameHeader HeaderFrom(const Block& block) {
  FrameHeader header;
  header.protocol_version = static_cast<uint8_t>(std::stoul(block.at("protocol_version")));
  header.flags = static_cast<uint8_t>(std::stoul(block.at("flags")));
  header.method = static_cast<uint16_t>(std::stoul(block.at("method")));
  header.request_id = std::stoull(block.at("request_id"));
  header.status = static_cast<uint32_t>(std::stoul(block.at("status")));
  return header;
}

TEST(Frame, EncodesAndDecodesTheGoldenVectors) {
  const auto blocks = GoldenBlocks("frame");
  ASSERT_GE(blocks.size(), 6U);
  for (const Block& block : blocks) {
    SCOPED_TRACE(block.at("frame"));
    const Bytes body = FromHex(block.at("body"));
    const Bytes bulk = FromHex(block.at("bulk"));
    const Bytes encoded = FromHex(block.at("encoded"));
    FrameHeader header = HeaderFrom(block);
    header.bulk_length = static_cast<uint32_t>(bulk.size());
    header.bulk_crc32c = Crc32c(bulk);

    const FrameHeaderBytes bytes = EncodeFrameHeader(header, body);
    Bytes whole(bytes.begin(), bytes.end());
    whole.insert(whole.end(), body.begin(), body.end());
    whole.insert(whole.end(), bulk.begin(), bulk.end());
    EXPECT_EQ(whole, encoded);

    const DecodedHeader decoded = DecodeFrameHeader(HeaderOf(encoded));
    ASSERT_EQ(decoded.malformed, Malformed::kNone);
    header.body_length = static_cast<uint32_t>(body.size());
    header.body_crc32c = decoded.header.body_crc32c;
    EXPECT_EQ(decoded.header, header);
    EXPECT_TRUE(BodyMatchesHeader(HeaderOf(encoded), body));
  }
}

TEST(Frame, RefusesTheMalformedVectors) {
  const auto blocks = GoldenBlocks("malformed");
  ASSERT_GE(blocks.size(), 12U);
  for (const Block& block : blocks) {
    SCOPED_TRACE(block.at("malformed"));
    const Bytes encoded = FromHex(block.at("encoded"));
    DecodedHeader decoded = DecodeFrameHeader(HeaderOf(encoded));
    if (decoded.malformed == Malformed::kNone) {
      const std::span body(encoded.data() + kFrameHeaderSize, decoded.header.body_length);
      const std::span bulk(body.data() + body.size(), decoded.header.bulk_length);
      if (Crc32c(bulk) != decoded.header.bulk_crc32c) decoded.malformed = Malformed::kBulkCrc;
      if (!BodyMatchesHeader(HeaderOf(encoded), body)) decoded.malformed = Malformed::kBodyCrc;
    }
    EXPECT_EQ(MalformedName(decoded.malformed), block.at("reason"));
  }
}

TEST(Frame, EveryFlippedHeaderBitIsSeenBeforeALengthIsBelieved) {
  FrameHeader header;
  header.method = 0x0101;
  header.request_id = 77;
  header.bulk_length = 4096;
  const Bytes body(10, 1);
  const FrameHeaderBytes good = EncodeFrameHeader(header, body);
  for (size_t bit = 0; bit < kFrameHeaderSize * 8; ++bit) {
    FrameHeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    const Malformed malformed = DecodeFrameHeader(bad).malformed;
    EXPECT_TRUE(malformed == Malformed::kMagic || malformed == Malformed::kHeaderCrc) << bit;
  }
}

Hello SomeHello() {
  Hello hello{1, 3, {}, "because"};
  hello.identity = {{1, 2, 3}, PeerKind::kMeta, 7, 0xABCDEF, 5};
  return hello;
}

TEST(Hello, RoundTripAlsoWithAppendedFields) {
  const Hello hello = SomeHello();
  Bytes encoded = EncodeHello(hello);
  ASSERT_TRUE(DecodeHello(encoded).ok());
  EXPECT_EQ(DecodeHello(encoded).value(), hello);

  const Bytes appended(8, 0xEE);
  encoded.insert(encoded.begin() + kHelloFixedSize, appended.begin(), appended.end());
  encoded[hello_offset::kStructLength] += 8;
  ASSERT_TRUE(DecodeHello(encoded).ok());
  EXPECT_EQ(DecodeHello(encoded).value(), hello);
}

TEST(Hello, InconsistentLengthsAreCorrupt) {
  Bytes encoded = EncodeHello(SomeHello());
  EXPECT_EQ(DecodeHello(std::span(encoded).first(20)).status().code(), Code::kCorrupt);
  encoded.push_back('x');
  EXPECT_EQ(DecodeHello(encoded).status().code(), Code::kCorrupt);
}

TEST(Hello, NegotiatesTheNewestCommonProtocol) {
  const Hello server{2, 5, {}, {}};
  EXPECT_EQ(NegotiateHello(server, {1, 3, {}, {}}).value(), 3);
  EXPECT_EQ(NegotiateHello(server, {5, 9, {}, {}}).value(), 5);
  const auto refused = NegotiateHello(server, {6, 9, {}, {}});
  EXPECT_EQ(refused.status().code(), Code::kVersionMismatch);
  EXPECT_NE(refused.status().message().find("fs3rpc 6..9"), std::string::npos);
}

TEST(Hello, AnotherClusterIsRefusedAndAnOpenOneIsNot) {
  Hello server = SomeHello();
  Hello client = SomeHello();
  client.identity.cluster_id = {9};
  const auto refused = NegotiateHello(server, client);
  EXPECT_EQ(refused.status().code(), Code::kVersionMismatch);
  EXPECT_NE(refused.status().message().find("cluster 0900"), std::string::npos);
  client.identity.cluster_id = kAnyCluster;
  EXPECT_TRUE(NegotiateHello(server, client).ok());
}

}  // namespace
}  // namespace fs3
