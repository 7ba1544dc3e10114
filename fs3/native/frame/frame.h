// The fs3rpc frame: a fixed header, a body and a bulk part (drawn in docs/design/formats.md).
//
// A header can be trusted before its payload arrives: its own CRC is checked before any length in
// it is believed, and every length is bounded. The body's CRC also covers the header's first 36
// bytes, so that a body cannot be taken for that of another header; the bulk carries its own CRC,
// which a receiver with per-granule checksums may derive instead of touching the bytes again.
//
// Magic, protocol version, header length and header CRC keep their places for ever, so that any
// two versions can tell each other that they do not match.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fs3/native/base/status.h"

namespace fs3 {

inline constexpr uint32_t kFrameMagic = 0x52335346;  // the bytes "FS3R"
inline constexpr uint8_t kProtocolMin = 1;           // oldest protocol this build speaks
inline constexpr uint8_t kProtocolMax = 1;           // newest

inline constexpr size_t kFrameHeaderSize = 48;
inline constexpr uint32_t kBodyLengthMax = 16U << 20;
// The largest chunk, and room for what a chunk operation sends along with it.
inline constexpr uint32_t kBulkLengthMax = (64U << 20) + (1U << 20);

namespace frame_offset {
inline constexpr size_t kMagic = 0;
inline constexpr size_t kProtocolVersion = 4;
inline constexpr size_t kFlags = 5;
inline constexpr size_t kMethod = 6;
inline constexpr size_t kRequestId = 8;
inline constexpr size_t kStatus = 16;
inline constexpr size_t kHeaderLength = 20;
inline constexpr size_t kBodyLength = 24;
inline constexpr size_t kBulkLength = 28;
inline constexpr size_t kBulkCrc = 32;
inline constexpr size_t kBodyCrc = 36;
inline constexpr size_t kReserved = 40;
inline constexpr size_t kHeaderCrc = 44;
}  // namespace frame_offset

// The part of the header that the body's CRC covers, and the part that the header's covers.
inline constexpr size_t kBodyCrcPrefix = frame_offset::kBodyCrc;
inline constexpr size_t kHeaderCrcPrefix = frame_offset::kHeaderCrc;

static_assert(frame_offset::kMethod == frame_offset::kFlags + 1);
static_assert(frame_offset::kRequestId == frame_offset::kMethod + 2);
static_assert(frame_offset::kStatus == frame_offset::kRequestId + 8);
static_assert(frame_offset::kReserved == frame_offset::kBodyCrc + 4);
static_assert(frame_offset::kHeaderCrc + 4 == kFrameHeaderSize);
static_assert(kFrameHeaderSize % 8 == 0);

inline constexpr uint8_t kFlagResponse = 1U << 0;
// The body is a sentence for a person about a failure, instead of the method's own encoding.
inline constexpr uint8_t kFlagText = 1U << 1;
inline constexpr uint8_t kFlagsKnown = kFlagResponse | kFlagText;

struct FrameHeader {
  uint8_t protocol_version = kProtocolMin;
  uint8_t flags = 0;
  uint16_t method = 0;
  uint64_t request_id = 0;
  uint32_t status = 0;
  uint32_t body_length = 0;
  uint32_t bulk_length = 0;
  uint32_t bulk_crc32c = 0;
  uint32_t body_crc32c = 0;

  bool is_response() const { return (flags & kFlagResponse) != 0; }
  bool is_text() const { return (flags & kFlagText) != 0; }
  Code code() const { return static_cast<Code>(status); }
  bool operator==(const FrameHeader&) const = default;
};

// Why a frame was refused. Each has a counter; all of them close the connection they came from.
enum class Malformed : uint8_t {
  kNone,
  kMagic,
  kHeaderCrc,
  kProtocolVersion,
  kHeaderLength,
  kFlags,
  kReserved,
  kBodyLength,
  kBulkLength,
  kBodyCrc,
  kBulkCrc,
  kUnexpected,  // a well-formed frame that this end may not receive now
};
inline constexpr size_t kMalformedCount = static_cast<size_t>(Malformed::kUnexpected) + 1;

std::string_view MalformedName(Malformed reason);

using FrameHeaderBytes = std::array<uint8_t, kFrameHeaderSize>;

// Encodes the header of a frame with this body; computes body_length, body_crc32c and the header
// CRC. bulk_length and bulk_crc32c are taken from `header`.
FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header, std::span<const uint8_t> body);

struct DecodedHeader {
  Malformed malformed = Malformed::kNone;
  FrameHeader header;  // complete only if not malformed
};

// Decodes and checks everything that can be checked before the payload is here.
DecodedHeader DecodeFrameHeader(std::span<const uint8_t, kFrameHeaderSize> bytes);

// Whether `body` belongs to the header that was decoded from `bytes`.
bool BodyMatchesHeader(std::span<const uint8_t, kFrameHeaderSize> bytes,
                       std::span<const uint8_t> body);

}  // namespace fs3
