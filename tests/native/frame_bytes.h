// Frames as bytes, for tests that stand in for a peer.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/frame/frame.h"

namespace fs3::testing_frames {

using Bytes = std::vector<uint8_t>;

inline Bytes MakeFrame(FrameHeader header, const Bytes& body, const Bytes& bulk) {
  header.bulk_length = static_cast<uint32_t>(bulk.size());
  header.bulk_crc32c = Crc32c(bulk);
  const FrameHeaderBytes head = EncodeFrameHeader(header, body);
  Bytes frame(head.begin(), head.end());
  frame.insert(frame.end(), body.begin(), body.end());
  frame.insert(frame.end(), bulk.begin(), bulk.end());
  return frame;
}

inline Bytes MakeFrame(uint16_t method, uint64_t request_id, const Bytes& body, const Bytes& bulk) {
  FrameHeader header;
  header.method = method;
  header.request_id = request_id;
  return MakeFrame(header, body, bulk);
}

inline Bytes RandomBytes(std::mt19937& random, size_t size) {
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

}  // namespace fs3::testing_frames
