#include "fs3/native/frame/frame.h"

#include "fs3/native/base/crc32c.h"
#include "fs3/native/frame/little_endian.h"

namespace fs3 {

std::string_view MalformedName(Malformed reason) {
  switch (reason) {
    case Malformed::kNone:
      return "none";
    case Malformed::kMagic:
      return "magic";
    case Malformed::kHeaderCrc:
      return "header_crc";
    case Malformed::kProtocolVersion:
      return "protocol_version";
    case Malformed::kHeaderLength:
      return "header_length";
    case Malformed::kFlags:
      return "flags";
    case Malformed::kReserved:
      return "reserved";
    case Malformed::kBodyLength:
      return "body_length";
    case Malformed::kBulkLength:
      return "bulk_length";
    case Malformed::kBodyCrc:
      return "body_crc";
    case Malformed::kBulkCrc:
      return "bulk_crc";
    case Malformed::kUnexpected:
      return "unexpected";
  }
  return "unknown";
}

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header, std::span<const uint8_t> body) {
  FrameHeaderBytes bytes{};
  uint8_t* out = bytes.data();
  StoreLittleEndian(out + frame_offset::kMagic, kFrameMagic);
  StoreLittleEndian(out + frame_offset::kProtocolVersion, header.protocol_version);
  StoreLittleEndian(out + frame_offset::kFlags, header.flags);
  StoreLittleEndian(out + frame_offset::kMethod, header.method);
  StoreLittleEndian(out + frame_offset::kRequestId, header.request_id);
  StoreLittleEndian(out + frame_offset::kStatus, header.status);
  StoreLittleEndian(out + frame_offset::kHeaderLength, static_cast<uint32_t>(kFrameHeaderSize));
  StoreLittleEndian(out + frame_offset::kBodyLength, static_cast<uint32_t>(body.size()));
  StoreLittleEndian(out + frame_offset::kBulkLength, header.bulk_length);
  StoreLittleEndian(out + frame_offset::kBulkCrc, header.bulk_crc32c);
  StoreLittleEndian(out + frame_offset::kBodyCrc, Crc32c(body, Crc32c(out, kBodyCrcPrefix)));
  StoreLittleEndian(out + frame_offset::kHeaderCrc, Crc32c(out, kHeaderCrcPrefix));
  return bytes;
}

DecodedHeader DecodeFrameHeader(std::span<const uint8_t, kFrameHeaderSize> bytes) {
  const uint8_t* in = bytes.data();
  const auto refuse = [](Malformed reason) { return DecodedHeader{reason, {}}; };
  if (LoadLittleEndian<uint32_t>(in + frame_offset::kMagic) != kFrameMagic) {
    return refuse(Malformed::kMagic);
  }
  if (LoadLittleEndian<uint32_t>(in + frame_offset::kHeaderCrc) != Crc32c(in, kHeaderCrcPrefix)) {
    return refuse(Malformed::kHeaderCrc);
  }
  FrameHeader header;
  header.protocol_version = in[frame_offset::kProtocolVersion];
  header.flags = in[frame_offset::kFlags];
  header.method = LoadLittleEndian<uint16_t>(in + frame_offset::kMethod);
  header.request_id = LoadLittleEndian<uint64_t>(in + frame_offset::kRequestId);
  header.status = LoadLittleEndian<uint32_t>(in + frame_offset::kStatus);
  header.body_length = LoadLittleEndian<uint32_t>(in + frame_offset::kBodyLength);
  header.bulk_length = LoadLittleEndian<uint32_t>(in + frame_offset::kBulkLength);
  header.bulk_crc32c = LoadLittleEndian<uint32_t>(in + frame_offset::kBulkCrc);
  header.body_crc32c = LoadLittleEndian<uint32_t>(in + frame_offset::kBodyCrc);

  if (header.protocol_version < kProtocolMin || header.protocol_version > kProtocolMax) {
    return refuse(Malformed::kProtocolVersion);
  }
  if (LoadLittleEndian<uint32_t>(in + frame_offset::kHeaderLength) != kFrameHeaderSize) {
    return refuse(Malformed::kHeaderLength);
  }
  if ((header.flags & ~kFlagsKnown) != 0) return refuse(Malformed::kFlags);
  if (LoadLittleEndian<uint32_t>(in + frame_offset::kReserved) != 0) {
    return refuse(Malformed::kReserved);
  }
  if (header.body_length > kBodyLengthMax) return refuse(Malformed::kBodyLength);
  if (header.bulk_length > kBulkLengthMax) return refuse(Malformed::kBulkLength);
  return {Malformed::kNone, header};
}

bool BodyMatchesHeader(std::span<const uint8_t, kFrameHeaderSize> bytes,
                       std::span<const uint8_t> body) {
  const auto expected = LoadLittleEndian<uint32_t>(bytes.data() + frame_offset::kBodyCrc);
  return Crc32c(body, Crc32c(bytes.data(), kBodyCrcPrefix)) == expected;
}

}  // namespace fs3
