// CRC32C by granules: computed once, compared on every read, combined instead of hashed again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs3/native/base/crc32c.h"

namespace fs3 {

// Crc32cCombine for a fixed length of the right part, by table: a few nanoseconds.
class CrcAppender {
 public:
  explicit CrcAppender(size_t length);
  uint32_t Append(uint32_t crc, uint32_t next) const {
    return table_[0][crc & 0xFF] ^ table_[1][crc >> 8 & 0xFF] ^ table_[2][crc >> 16 & 0xFF] ^
           table_[3][crc >> 24] ^ next;
  }
  uint32_t zeros() const { return zeros_; }  // CRC of `length` zero bytes

 private:
  uint32_t table_[4][256];
  uint32_t zeros_;
};

// For a granule size: a power of two from 4 KiB to 256 KiB.
const CrcAppender& AppenderFor(uint32_t granule);

}  // namespace fs3
