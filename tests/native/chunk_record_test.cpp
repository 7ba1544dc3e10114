// Records, keys and layouts as bytes and as rules.
#include <gtest/gtest.h>

#include <random>

#include "fs3/native/chunk/record.h"

namespace fs3 {
namespace {

std::string FromHex(std::string_view hex) {
  std::string out;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits.push_back(c);
    if (digits.size() < 2) continue;
    out.push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  return out;
}

Record Example() {
  Record record;
  record.version = {3, 0x1122};
  record.chunk_size = 1U << 20;
  record.length = 0x6001;
  record.truncate_version = 9;
  record.once = {{0x0102030405060708, 5, 6, {3, 0x1122}, 0x6001}};
  record.pieces = {{0, 0x2000, PieceKind::kBlock, 16, 7, 0},
                   {0x5000, 0x2000, PieceKind::kLog, 0, 2, 0x9000}};
  record.crcs = {0xA0A0A0A0, 0xB0B0B0B0, 0, 0, 0, 0xC0C0C0C0, 0xD0D0D0D0};
  return record;
}

// The layout of docs/design/formats.md. These bytes never change: a new format gets a new number.
constexpr std::string_view kExampleHex =
    "01 00 14 00 01600000 0300000000000000 2211000000000000 0900000000000000 01000000 02000000"
    "0807060504030201 0600000000000000 0300000000000000 2211000000000000 05000000 01600000"
    "00000000 00200000 01 10 0000 07000000 00000000 A0A0A0A0 B0B0B0B0"
    "00500000 00200000 02 00 0000 02000000 00900000 C0C0C0C0 D0D0D0D0";

TEST(ChunkRecord, HasTheDocumentedBytes) {
  const std::string bytes = FromHex(kExampleHex);
  EXPECT_EQ(EncodeRecord(Example()), bytes);
  const Record decoded = DecodeRecord(bytes).value();
  EXPECT_EQ(decoded.info(), Example().info());
  EXPECT_EQ(decoded.chunk_size, Example().chunk_size);
  EXPECT_EQ(decoded.once, Example().once);
  EXPECT_EQ(decoded.pieces, Example().pieces);
  EXPECT_EQ(decoded.crcs, Example().crcs);
}

TEST(ChunkRecord, KeysAndStateHaveTheDocumentedBytes) {
  const RecordKey key{{0x0102030405060708, 0x090A0B0C, 0x0D0E, 0x0F10}, 0x1112131415161718};
  const std::string bytes = "V" + FromHex("0102030405060708090A0B0C0D0E0F101112131415161718");
  EXPECT_EQ(EncodeKey('V', key), bytes);
  EXPECT_EQ(DecodeKey(bytes).value(), key);
  EXPECT_EQ(EncodeState({0x0203, "boot"}), FromHex("01 0302000000000000") + "boot");
  EXPECT_EQ(DecodeState(EncodeState({7, "x"})).value().boot_id, "x");
}

TEST(ChunkRecord, MalformedBytesAreRefused) {
  const std::string good = FromHex(kExampleHex);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeRecord(good.substr(0, size)).ok());
  }
  EXPECT_FALSE(DecodeRecord(good + "x").ok());
  std::mt19937 random(1);
  for (int i = 0; i < 20000;
       ++i) {  // anything may come out, but only a record that keeps the rules
    std::string bad = good;
    for (int flips = 0; flips < 3; ++flips) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    const auto decoded = DecodeRecord(bad);
    if (!decoded.ok()) continue;
    uint32_t end = 0;
    for (const Piece& piece : decoded.value().pieces) {
      EXPECT_GE(piece.offset, end);
      end = piece.end();
      EXPECT_LE(end, decoded.value().chunk_size);
      EXPECT_LE(end / decoded.value().granule(), decoded.value().crcs.size());
    }
  }
}

TEST(ChunkRecord, PositionsFollowTheFiles) {
  Piece piece{0x1000, 0x3000, PieceKind::kBlock, 20, (3U << 14) + 5, 0x2000};
  EXPECT_EQ(FileName(FileOf(piece)), "blocks/1048576-3");
  EXPECT_EQ(PositionOf(piece, 0x2000), (5ULL << 20) + 0x3000);
  piece = {0x1000, 0x3000, PieceKind::kLog, 0, 4, 0x2000};
  EXPECT_EQ(FileName(FileOf(piece)), "log/4");
  EXPECT_EQ(PositionOf(piece, 0x3000), 0x4000U);
}

// What a chunk's granules refer to, by brute force.
using Granules = std::vector<std::optional<std::pair<uint32_t, uint32_t>>>;

Granules Expand(const std::vector<Piece>& pieces, size_t count) {
  Granules out(count);
  for (const Piece& piece : pieces) {
    for (uint32_t at = piece.offset; at < piece.end(); at += 4096) {
      out[at / 4096] = {{piece.number, piece.position + (at - piece.offset)}};
    }
  }
  return out;
}

TEST(ChunkRecord, OverlayAndCutMatchAPlainMap) {
  constexpr uint32_t kCount = 32;
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<Piece> pieces;
    Granules model(kCount);
    for (uint32_t step = 0; step < 40; ++step) {
      const uint32_t begin = random() % kCount;
      const uint32_t count = 1 + random() % (kCount - begin);
      if (random() % 8 == 0) {
        Cut(pieces, begin * 4096);
        for (uint32_t i = begin; i < kCount; ++i) model[i].reset();
      } else {
        const uint32_t number = random() % 3;
        Overlay(pieces, {begin * 4096, count * 4096, PieceKind::kLog, 0, number, begin * 4096});
        for (uint32_t i = begin; i < begin + count; ++i) model[i] = {{number, i * 4096}};
      }
      ASSERT_EQ(Expand(pieces, kCount), model);
      for (size_t i = 1; i < pieces.size(); ++i) {
        ASSERT_LE(pieces[i - 1].end(), pieces[i].offset);
        const bool could_join =
            pieces[i - 1].end() == pieces[i].offset && pieces[i - 1].number == pieces[i].number;
        ASSERT_FALSE(could_join);
      }
    }
  }
}

}  // namespace
}  // namespace fs3
